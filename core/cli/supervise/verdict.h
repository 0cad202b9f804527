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
    int signal = 0, code = 0;       ///< `signal` or `code` of the process; the other one is 0
    bool late = false;              ///< the launcher killed the process, since it did not end in time
    char state = 0;                 ///< state of the process then, as in /proc: T: stopped, D: in a disk wait
    bool done = false;              ///< the rank completed
    std::optional<Loss> told = {};  ///< why the rank gave up, as it reported
};

/// Determines why the ranks of a host ended and which rank is to blame. `ends` is in the order of their ends. A rank's
/// report about another rank counts less than anything observed, and one that names no rank or node blames none.
/// `code`: the command's exit code. `no_memory`: the system has killed a process for lack of memory since the ranks
/// started.
Loss verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory);

}  // namespace orrery
