#include "sim/cluster/mapping.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"

namespace orrery {

namespace {

/// Returns the axes of the mesh, innermost first: those of `order`, then the others.
std::vector<AxisId> ordered(const Mesh& mesh, const std::vector<std::string>& order) {
    std::vector<std::string> names;
    std::vector<AxisId> out;
    for (const Axis& axis : mesh.axes()) {
        if (!axis.sequential) names.push_back(axis.name);
    }
    for (const std::string& name : order) {
        const auto found = std::ranges::find(names, name);
        if (found == names.end())
            throw Error(fmt::format("unknown axis \"{}\" in the order of the mapping: the mesh is {}{}", name,
                                    mesh.text(), choices("it has", name, names)));
        const AxisId axis = *mesh.find(name);
        if (std::ranges::find(out, axis) != out.end())
            throw Error(
                fmt::format("duplicate axis \"{}\" in the order of the mapping\n  name each axis at most once", name));
        out.push_back(axis);
    }
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        const AxisId axis = *mesh.find(*name);
        if (std::ranges::find(out, axis) == out.end()) out.push_back(axis);
    }
    return out;
}

/// Describes the kinds of nodes if there are several: "; 16 ranks on a100 (old), 16 on h100 (new)".
std::string kinds_text(const Cluster& cluster, int64_t ranks) {
    std::string out;
    if (cluster.kinds.size() == 1) return out;
    const std::vector<int64_t> by_kind = cluster.ranks_by_kind(ranks);
    for (size_t k = 0; k < by_kind.size() && by_kind[k] > 0; ++k)
        out += fmt::format("{} {} on {} ({})", out.empty() ? ";" : ",",
                           out.empty() ? plural(by_kind[k], "rank") : std::to_string(by_kind[k]),
                           cluster.kinds[k].accelerator.name, cluster.kinds[k].name);
    return out;
}

/// Describes how many nodes each mesh axis spans: "tp=8 in a node, dp=4 over 4 nodes, pp=2 over 8 nodes".
std::string describe(const Cluster& cluster, const Mesh& mesh, const std::vector<AxisId>& axes) {
    std::string out;
    int64_t ranks = 1;
    for (const AxisId axis : axes) {
        if (mesh.size(axis) == 1) continue;
        ranks *= mesh.size(axis);
        const int64_t nodes = cluster.place(ranks - 1).node + 1;
        out += fmt::format("{}{}={} {}", out.empty() ? "" : ", ", mesh.axis(axis).name, mesh.size(axis),
                           nodes == 1 ? "in a node" : fmt::format("over {} nodes", nodes));
    }
    return (out.empty() ? "one rank" : out) + kinds_text(cluster, mesh.ranks());
}

}  // namespace

Mapping::Mapping(const Cluster& cluster, const Mesh& mesh, const std::vector<std::string>& order) {
    const int64_t ranks = mesh.ranks();
    const int64_t there = cluster.accelerators();
    if (ranks > there)
        throw Error(
            fmt::format("the mesh {} has {} ranks, the cluster {} accelerators: {} missing\n  take a smaller mesh "
                        "or more nodes ({})",
                        mesh.text(), ranks, there, ranks - there, cluster.text()));
    const std::vector<AxisId> axes = ordered(mesh, order);
    std::vector<int64_t> stride(mesh.axes().size(), 0);
    int64_t step = 1;
    for (const AxisId axis : axes) {
        stride[static_cast<size_t>(axis)] = step;
        step *= mesh.size(axis);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> at = mesh.coordinates(rank);
        int64_t slot = 0;
        for (size_t axis = 0; axis < at.size(); ++axis) slot += at[axis] * stride[axis];
        slots_.push_back(slot);
    }
    text_ = describe(cluster, mesh, axes);
}

}  // namespace orrery
