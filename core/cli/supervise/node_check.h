#pragma once
#include <string>
#include <vector>

#include "control/supervisor.h"

namespace orrery {

struct ScriptCommand;  // defined in cli/commands.h

struct NodeCheck {
    Fitness fitness = Fitness::fit;
    std::string why;  ///< why the node is not fit
};

/// Checks whether this node can run ranks, by those checks of `orrery preflight` that need no other rank, in at most 5
/// s. `folder`: where the run's files are written.
NodeCheck check_node(const ScriptCommand& command, const std::string& folder);

/// Runs this program with `arguments`. The node is fit if the process exits with 0 within `seconds`; otherwise `why` is
/// its last output. If a disk keeps the process from ending, the next call waits for it, so at most one exists.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds);

}  // namespace orrery
