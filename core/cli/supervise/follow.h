#pragma once
#include "cli/supervise/supervise.h"
#include "run/control/job.h"

namespace orrery {

/// The launcher of a node other than 0: joins node 0's, starts and ends ranks as ordered, and reports how they ended.
/// If node 0's launcher is lost, it ends its ranks and looks for that launcher as long as a node is waited for. Returns
/// the exit code.
int follow_node_0(LaunchSpec& spec, const Supervision& supervision);

}  // namespace orrery
