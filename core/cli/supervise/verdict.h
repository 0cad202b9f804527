#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "control/loss.h"

namespace orrery {

struct RankEnd {
    int64_t rank = 0;
    int pid = 0;
    int signal = 0, code = 0;       ///< signal that ended the process; else its exit code
    bool late = false;              ///< the launcher killed the process, since it did not end in time
    char state = 0;                 ///< letter of the killed process's state in /proc: T: stopped, D: in a disk wait
    bool done = false;              ///< the rank completed its work
    std::optional<Loss> told = {};  ///< why the rank gave up, as it reported
};

/// Returns why the ranks of a host ended and which rank is to blame. `ends` is in the order in which they ended. What
/// was observed counts more than what a rank reports about another. `code`: the launcher's exit code. `no_memory`: the
/// system has killed a process for lack of memory since the ranks started.
Loss verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory);

}  // namespace orrery
