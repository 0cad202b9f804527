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

/// Runs this program with `arguments` and waits up to `seconds`. If the process of an earlier call still runs, waits
/// for that one, and ignores `arguments`. The node is fit if the process exits with 0; else `why` is its last output.
/// It is killed after `in_all` seconds; if a disk blocks its end, no other one starts before it has ended.
NodeCheck check_by_run(std::vector<std::string> arguments, double seconds, double in_all);

}  // namespace orrery
