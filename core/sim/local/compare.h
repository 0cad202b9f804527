#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/cost_table.h"
#include "sim/simulate.h"

namespace orrery {

/// A part of a step, mean over all ranks, in seconds.
struct ComparedPart {
    std::string what;  ///< "matmul", "dp: all_reduce", "between two steps"
    bool communication = false;
    double predicted_s = 0, measured_s = 0;
};

/// A step of `plan` as it was played and as a run measured it.
struct Comparison {
    std::vector<ComparedPart> parts;  ///< kernels by op, the most first; communication by axis and op; the rest
    ComparedPart step;
};

/// `run`: what every launch and message took (SimulateOptions::every_launch); a collective or receive counts from its
/// call, waits for others included, as the executor's clock has it, a send takes none. `rest_s`: what `run` does not
/// play: the host between two steps. `measured`: the table that a run of this plan wrote. Throws Error where it has no
/// steps.
Comparison compare(const Plan& plan, const Simulated& run, double rest_s, const CostTable& measured);

/// A few lines for people, in ms: at most `most` ops by name.
std::string text_of(const Comparison& comparison, size_t most = 6);

/// Predicted over measured, less 1; 0 where nothing was measured.
double off(const ComparedPart& part);

}  // namespace orrery
