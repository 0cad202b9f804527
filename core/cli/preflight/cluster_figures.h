#pragma once
#include "run/preflight/expected.h"
#include "sim/cluster/cluster.h"

namespace orrery {

/// Expected figures from a cluster's file, per rank and direction. With several kinds of nodes, the smallest value of
/// each figure counts. Nodes whose kind lacks a figure are listed as unsaid, in the file's order. A link without a rate
/// in the file has no figures.
ExpectedFigures figures_of(const Cluster& cluster);

}  // namespace orrery
