#pragma once
#include <cstdint>
#include <ostream>
#include <string>

#include "orrery/plan.h"
#include "sim/simulate.h"

namespace orrery {

/// Writes a step simulated with `every_launch` in the format of core/trace, with the same processes, lanes and names as
/// the trace of a run. Each queue of a rank has a lane; the second queue of an axis is "pp 2". If all ranks together
/// have more than `most_bars` bars, one rank represents those that behave the same, and its name says so. Returns the
/// number of bars. Throws Error for a time or slice that TraceWriter refuses.
int64_t write_trace(const Plan& plan, const Simulated& run, const std::string& cluster, std::ostream& out,
                    int64_t most_bars = 500'000);

}  // namespace orrery
