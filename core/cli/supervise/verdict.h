#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "control/loss.h"

namespace orrery {

/// How a rank's process ended, and what it reported.
struct RankEnd {
    int64_t rank = 0;
    int pid = 0;
    int signal = 0, code = 0;       ///< signal that ended the process, or its exit code; the other one is 0
    bool late = false;              ///< the launcher killed the process, since it did not end in time
    char state = 0;                 ///< state of the killed process, as in /proc: T: stopped, D: in a disk wait
    bool done = false;              ///< the rank completed its work
    std::optional<Loss> told = {};  ///< why the rank gave up, as it reported
};

/// Determines why the ranks of a host ended and which rank is to blame. `ends` is in the order in which they ended;
/// what a rank reports about another counts less than what was observed, and a report that names no rank or node blames
/// none. `code`: the launcher's exit code. `no_memory`: the system has killed a process for lack of memory since the
/// ranks started.
Loss verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory);

}  // namespace orrery
