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

/// Checks whether this node can run ranks, with those checks of `orrery preflight` that need one rank only. Waits at
/// most 5 s; a check that takes longer continues, and the next call waits for it. It is killed after two minutes.
/// `folder`: where the run's files are written.
NodeCheck check_node(const ScriptCommand& command, const std::string& folder);

/// Runs this program with `arguments`, or waits again for the process of the last call if that still runs; each call
/// takes at most `seconds`. The node is fit if the process exits with 0; else `why` is its last output. It is killed
/// after `in_all` seconds. If a disk blocks it from ending, the next call waits for it: there is never a second one.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds, double in_all);

}  // namespace orrery
