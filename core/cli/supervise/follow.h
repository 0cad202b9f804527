#pragma once
#include "base/json_fwd.h"
#include "cli/supervise/supervise.h"
#include "run/control/job.h"

namespace orrery {

/// The launcher of a node but 0: joins node 0's, starts and ends ranks as that orders, and reports how they ended.
/// Where node 0's goes, its ranks are ended, and it is looked for as long as a node is waited for. Returns the exit
/// code.
int follow_node_0(LaunchSpec& spec, const Supervision& supervision);

// How launchers say it to each other.
Json to_json(const Ended& how);
Ended ended_of(const Json& text);

}  // namespace orrery
