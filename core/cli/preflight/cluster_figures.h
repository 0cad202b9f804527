#pragma once
#include "run/preflight/expected.h"
#include "sim/cluster/cluster.h"

namespace orrery {

/// What a cluster's file says that its machines do, of a rank and of one direction; of several kinds of nodes the least
/// of each that is said, and of the kind that does not say it nothing: its nodes are those that the file's order gives
/// it. Nothing of links that the file does not price.
ExpectedFigures figures_of(const Cluster& cluster);

}  // namespace orrery
