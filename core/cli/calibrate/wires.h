#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "orrery/config.h"
#include "plan/cost_table.h"

namespace orrery {

/// What the ranks of one transport measured, in a process of their own with this command's arguments.
struct WiresFound {
    std::vector<WireCost> rows;
    std::string why_not;  ///< why there are none; "": there are
};
WiresFound find_wires(const ScriptCommand& script, const std::string& transport, int64_t ranks, double seconds);

/// The process that find_wires starts, which starts the ranks; or one of these. Rank 0 prints the rows. Returns the
/// exit code.
int wires_process(const ScriptCommand& script, const CalibrateCommand& command, Config& config);

}  // namespace orrery
