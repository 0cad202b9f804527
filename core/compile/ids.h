#pragma once
#include <map>
#include <string>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// The ids that an input may contain, such as token ids: from `least` to count - 1.
struct IdRange {
    int64_t least = -1;  ///< -1: all readers of the input accept -1 as "none" (an ignored target); 0: not all do
    int64_t count = 0;   ///< size of the dim that ids index (rows of a table, logits); 0: no limit
};

/// By input that ops use for lookups: its legal ids. `recorded`: a program before distribution, which would replace a
/// loss over split logits by other ops.
std::map<std::string, IdRange> ids_of(const Program& recorded);

/// Restricts the ranges in `ids` to the ids that are also legal in `also`.
void narrow(std::map<std::string, IdRange>& ids, const std::map<std::string, IdRange>& also);

/// Whether an input of that name numbers the documents and places of a row ("documents", "positions", "places"): what
/// it looks up is no vocabulary.
bool numbers_places(std::string_view input);

/// The smallest number of ids that a lookup allows (IdRange::count); 0 without lookups. Inputs that number places do
/// not count.
int64_t vocabulary_of(const Program& recorded);

}  // namespace orrery
