#pragma once
#include "run/preflight/expected.h"
#include "sim/cluster/cluster.h"

namespace orrery {

/// Returns the performance per rank and direction that a cluster's file promises. With several kinds of nodes, the
/// smallest value of each figure counts. A kind of nodes whose entry lacks a figure is listed as Unsaid, in the file's
/// order. A link without a rate in the file has no figures.
ExpectedFigures figures_of(const Cluster& cluster);

}  // namespace orrery
