#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "orrery/config.h"
#include "plan/cost_table.h"

namespace orrery {

struct WiresFound {
    std::vector<WireCost> rows;
    std::string why_not;  ///< why there are no rows; "" if there are rows
};
WiresFound find_wires(const ScriptCommand& script, const std::string& transport, int64_t ranks, double seconds);

/// Runs the process that find_wires() starts, or a rank of it; rank 0 prints the costs. Returns the exit code.
int wires_process(const ScriptCommand& script, const CalibrateCommand& command, Config& config);

}  // namespace orrery
