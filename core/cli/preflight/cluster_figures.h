#pragma once
#include "run/preflight/expected.h"
#include "sim/cluster/cluster.h"

namespace orrery {

/// Expected performance from a cluster's file, per rank and direction. With several kinds of nodes, the smallest value
/// of each figure counts. Kinds whose entry lacks a figure are listed as Unsaid, in the file's order. A link without a
/// rate in the file has no figures.
ExpectedFigures figures_of(const Cluster& cluster);

}  // namespace orrery
