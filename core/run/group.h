#pragma once
#include <fmt/format.h>

#include "orrery/communicator.h"
#include "orrery/mesh.h"

namespace orrery {

/// The group of a rank along one axis of the mesh. `prefix` tells jobs apart that meet in one rendezvous.
inline Group group_along(const Mesh& mesh, int64_t rank, AxisId axis, std::string_view prefix = "") {
    Group group;
    group.axis = mesh.axis(axis).name;
    group.ranks = mesh.group(rank, axis);
    group.me = static_cast<int>(mesh.coordinates(rank)[static_cast<size_t>(axis)]);
    group.name = fmt::format("{}{}/{}", prefix, group.axis, group.ranks.front());
    return group;
}

}  // namespace orrery
