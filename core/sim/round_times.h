#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compile/compile.h"
#include "sim/simulate.h"

namespace orrery {

/// The simulated times of the programs of a round; empty for a plain round.
struct RoundTimes {
    std::vector<std::pair<std::string, double>> programs;  ///< name and seconds of a run, in the order of the round
    double peak_s = 0;  ///< the longest step, with the programs that follow it and belong to it

    /// A line of a report; "" for a plain round. `mean_s`: of a step.
    std::string text(const Compiled& compiled, double mean_s) const;
};

/// Turns `run`, which simulates the first step of the round, into the mean of a step with all that follows it and
/// belongs to it. Adds to each rank the mean over ranks of the other programs, so that sums over ranks are right.
/// `simulated` simulates the plan of another program.
RoundTimes add_round(Simulated& run, const Compiled& compiled, const std::function<Simulated(const Plan&)>& simulated);

}  // namespace orrery
