#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/cost_table.h"
#include "sim/simulate.h"

namespace orrery {

/// Time of a part of a step, mean over all ranks.
struct ComparedPart {
    std::string what;  ///< "matmul", "dp: all_reduce", "between two steps"
    bool communication = false;
    double predicted_s = 0, measured_s = 0;
};

struct Comparison {
    std::vector<ComparedPart> parts;  ///< kernels by op, largest first; communication by axis and op; the rest
    ComparedPart step;
};

/// Compares a simulation with a measurement. `run`: a simulation with SimulateOptions::every_launch. As in the
/// executor's counters, a collective or receive counts from its call, including waits for other ranks, and a send takes
/// no time. `rest_s`: the host's work between steps, which `run` does not simulate. `measured`: the cost table that a
/// run of this plan wrote. Throws Error if the table has no steps.
Comparison compare(const Plan& plan, const Simulated& run, double rest_s, const CostTable& measured);

/// Formats a comparison in a few lines, in ms. Names at most `most` ops.
std::string text_of(const Comparison& comparison, size_t most = 6);

/// Predicted time over measured time, minus 1; 0 if nothing was measured.
double off(const ComparedPart& part);

}  // namespace orrery
