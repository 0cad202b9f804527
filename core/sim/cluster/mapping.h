#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "sim/cluster/cluster.h"

namespace orrery {

class Mapping {
public:
    /// `order`: axes of the mesh from the innermost, whose ranks are adjacent in a node, to the outermost; empty: the
    /// mesh's own order. Axes that are left out follow in the mesh's order. Throws Error if the mesh has more ranks
    /// than the cluster has accelerators, saying how many are missing, and for unknown or repeated axes.
    Mapping(const Cluster& cluster, const Mesh& mesh, const std::vector<std::string>& order = {});

    int64_t ranks() const { return static_cast<int64_t>(slots_.size()); }
    /// Slot of a rank: index among all accelerators, node by node.
    int64_t slot(int64_t rank) const { return slots_[static_cast<size_t>(rank)]; }
    /// Describes where neighbours along each mesh axis are: "tp (8) in a node, then dp (4), pp (2)".
    std::string text() const { return text_; }

private:
    std::vector<int64_t> slots_;
    std::string text_;
};

}  // namespace orrery
