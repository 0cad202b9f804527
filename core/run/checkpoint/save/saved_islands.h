#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "run/checkpoint/restore/restore.h"

namespace orrery {

/// How the values of a run are read from a checkpoint of another number of islands, as the option `resume` of the
/// strategy says; nullopt: the run has no islands.
std::optional<OtherRows> from_other_rows(const Compiled& compiled);

/// The same for one value: the rows of errors of feedback are added.
OtherRows of_islands(const Value& value, OtherRows how);

/// Makes each value take the mean of a checkpoint's islands.
void take_means(std::vector<StateValue>& state);

/// A user message about islands that resumed from another number of them; "" for the same number. Throws Error within a
/// round if the script allows it only at the end of one. `after`: step after which the round began.
std::string said_of_islands(const Restored& restored, const Compiled& compiled, int64_t after);

}  // namespace orrery
