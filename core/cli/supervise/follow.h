#pragma once
#include "cli/supervise/supervise.h"
#include "run/control/job.h"

namespace orrery {

/// Runs the launcher of a node other than 0: joins node 0's launcher, starts and ends ranks as it orders, and reports
/// how they ended. If node 0's launcher is lost, ends the ranks and tries to join again for as long as a job waits for
/// a lost node. Returns the exit code.
int follow_node_0(LaunchSpec& spec, const Supervision& supervision);

}  // namespace orrery
