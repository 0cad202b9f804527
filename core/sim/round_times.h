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
    /// Name and seconds of a run, in the order of the round; of one that waits for messages without the time in which
    /// they are on their way while steps run.
    std::vector<std::pair<std::string, double>> programs;
    double peak_s = 0;  ///< the longest step, with the programs that follow it and belong to it

    /// The line "round ..." of a report; "" for a plain round. `mean_s`: seconds of a mean step.
    std::string text(const Compiled& compiled, double mean_s) const;
};

/// Replaces step_s and the computing, communicating, waiting and exposed times of `run` (of the first step of the
/// round) by their mean per step of the round. Every rank gets the mean over ranks of the other programs' times, so
/// sums over ranks are exact, those of one rank are not. Fragments, lanes and items stay those of the first step. Calls
/// `simulated` once for each other program, by its index in the round; its items are needed where the program waits for
/// messages that are sent while steps run, which are taken to cost those steps nothing. Returns empty RoundTimes for a
/// plain round, and leaves `run` unchanged.
RoundTimes add_round(Simulated& run, const Compiled& compiled, const std::function<Simulated(size_t)>& simulated);

}  // namespace orrery
