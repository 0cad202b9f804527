#pragma once
#include <cstdint>
#include <ostream>
#include <string>

#include "orrery/plan.h"
#include "sim/simulate.h"

namespace orrery {

/// Writes a step that was simulated with `every_launch` as core/trace has it: the same processes, lanes and names as
/// the trace of a run. A lane for each queue of a rank: a second one of an axis is "pp 2". Where all ranks have more
/// than `most_bars`, one of those that do alike stands for them, as its name says. Returns the number of bars. Throws
/// Error as TraceWriter does.
int64_t write_trace(const Plan& plan, const Simulated& run, const std::string& cluster, std::ostream& out,
                    int64_t most_bars = 500'000);

}  // namespace orrery
