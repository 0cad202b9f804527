#pragma once
#include <cstdint>
#include <functional>
#include <set>
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
/// `bytes`: sizes to measure; empty: those of the command.
WiresFound find_wires(const ScriptCommand& script, const std::string& transport, int64_t ranks,
                      const std::set<int64_t>& bytes, double seconds);

/// Runs the process that find_wires() starts, or a rank of it; rank 0 prints the costs. `read`: reads the
/// configuration, once for each rank. Returns the exit code.
int wires_process(const ScriptCommand& script, const CalibrateCommand& command, const std::function<Config()>& read);

}  // namespace orrery
