#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "control/loss.h"

namespace orrery {

/// How a rank's process ended, and what it had told.
struct RankEnd {
    int64_t rank = 0;
    int pid = 0;
    int signal = 0, code = 0;       ///< one of them
    bool late = false;              ///< its launcher killed it, as it did not end in time
    char state = 0;                 ///< what its process did then, as /proc has it: T is stopped, D waits for a disk
    bool done = false;              ///< it came to its end
    std::optional<Loss> told = {};  ///< why it gave up
};

/// Why the ranks of a host ended, who is to blame, from how each did, in the order of their ends. What a rank says of
/// another is hearsay, which anything seen comes before. `code`: what the command ends with. `no_memory`: the system
/// killed a process since they began, as it had none.
Loss verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory);

}  // namespace orrery
