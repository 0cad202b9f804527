#pragma once
#include <string>
#include <vector>

#include "control/supervisor.h"

namespace orrery {

struct ScriptCommand;  // cli/commands.h

struct NodeCheck {
    Fitness fitness = Fitness::fit;
    std::string why;  ///< why the node is not fit
};

/// Runs the checks of `orrery preflight` that need no other rank on this host, in at most 5 s. `folder`: where the
/// run's files are written.
NodeCheck check_node(const ScriptCommand& command, const std::string& folder);

/// Runs this program with other arguments. The node is fit if it exits with 0 within `seconds`; otherwise its last
/// output is the reason. If a disk keeps the process from ending, the next call waits for it, so at most one exists.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds);

}  // namespace orrery
