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

/// Checks in at most 5 s whether this node can run ranks, with those checks of `orrery preflight` that need one rank
/// only. `folder`: where the run's files are written.
NodeCheck check_node(const ScriptCommand& command, const std::string& folder);

/// Runs this program with `arguments`. The node is fit if the process exits with 0 within `seconds`; else `why` is its
/// last output. If a disk blocks the process from ending, the next call waits for it: there is never a second one.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds);

}  // namespace orrery
