#pragma once
#include <string>
#include <vector>

#include "control/supervisor.h"

namespace orrery {

struct ScriptCommand;  // defined in cli/commands.h

struct NodeCheck {
    Fitness fitness = Fitness::fit;
    std::string why;  ///< why the node is not fit; "": it is fit
};

/// Checks for up to 5 s whether this node can run ranks, with those checks of `orrery preflight` that need one rank
/// only. `folder`: where the run's files are written.
NodeCheck check_node(const ScriptCommand& command, const std::string& folder);

/// Runs this program with `arguments`. The node is fit if the process exits with 0; else `why` is its last output. A
/// process that still runs after `seconds` is late, and the next call waits for the same one, whatever its arguments.
/// It is killed after two minutes. There is never a second process, even if a disk blocks the first from ending.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds);

}  // namespace orrery
