#pragma once
#include <map>
#include <string>

#include "orrery/program.h"

namespace orrery {

/// The ids that are legal in an input, such as token ids: from `least` to count - 1.
struct IdRange {
    int64_t least = -1;  ///< -1 when all readers of the input accept it as "none" (an ignored target)
    int64_t count = 0;   ///< size of the dim that the ids index (rows of a table, logits); 0: no limit
};

/// The legal ids of each input that contains ids for lookups, by the input's name. `recorded`: a program before
/// distribution, which replaces a loss over split logits by other ops.
std::map<std::string, IdRange> ids_of(const Program& recorded);

/// Restricts the ranges in `ids` to the ids that are also legal in `also`.
void narrow(std::map<std::string, IdRange>& ids, const std::map<std::string, IdRange>& also);

/// The smallest IdRange::count of all inputs; 0 if no op looks up ids.
int64_t vocabulary_of(const Program& recorded);

}  // namespace orrery
