#pragma once
#include <map>
#include <string>

#include "orrery/program.h"

namespace orrery {

/// The ids that an input may hold: `least` to count - 1.
struct IdRange {
    int64_t least = -1;  ///< -1 where that stands for none to all that read it: a target that the loss ignores
    int64_t count = 0;   ///< rows of the table that it is looked up in, or logits that it is a target of; 0: any number
};

/// By name of the input; one that is neither looked up nor a target is not there. `recorded`: not distributed, which
/// writes a loss over split logits as other ops.
std::map<std::string, IdRange> ids_of(const Program& recorded);

/// Leaves of `ids` what `also` allows, too.
void narrow(std::map<std::string, IdRange>& ids, const std::map<std::string, IdRange>& also);

/// The fewest ids of any input; 0: none is looked up or a target.
int64_t vocabulary_of(const Program& recorded);

}  // namespace orrery
