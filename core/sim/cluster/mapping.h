#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "sim/cluster/cluster.h"

namespace orrery {

/// Which rank sits on which accelerator.
class Mapping {
public:
    /// `order`: axes of the mesh from the one whose ranks lie side by side in a node to the one that spreads furthest;
    /// empty: the mesh's own, innermost first. An axis that is left out follows in the mesh's order. Throws Error when
    /// the mesh has more ranks than the cluster accelerators, saying how many are missing, and for names that are no
    /// axis or come twice.
    Mapping(const Cluster& cluster, const Mesh& mesh, const std::vector<std::string>& order = {});

    int64_t ranks() const { return static_cast<int64_t>(slots_.size()); }
    /// Index into all accelerators, node by node.
    int64_t slot(int64_t rank) const { return slots_[static_cast<size_t>(rank)]; }
    /// "tp (8) in a node, then dp (4), pp (2)": where each axis' neighbours lie.
    std::string text() const { return text_; }

private:
    std::vector<int64_t> slots_;
    std::string text_;
};

}  // namespace orrery
