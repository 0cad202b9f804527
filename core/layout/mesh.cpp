#include "orrery/mesh.h"

#include <fmt/format.h>

#include <cassert>

namespace orrery {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
    for (size_t i = 0; i < axes_.size(); ++i) {
        const Axis& axis = axes_[i];
        if (axis.name.empty()) throw Error(fmt::format("axis {} of the mesh has no name", i));
        if (axis.size < 1)
            throw Error(
                fmt::format("mesh axis {} has size {}; a size is 1 or more, leave the axis out to switch it off",
                            axis.name, axis.size));
        if (axis.sequential && i + 1 != axes_.size())
            throw Error(fmt::format("mesh axis {} is sequential but not the last one ({})", axis.name, text()));
        for (size_t j = 0; j < i; ++j)
            if (axes_[j].name == axis.name)
                throw Error(fmt::format("mesh axis {} is named twice: {}", axis.name, text()));
    }
}

std::optional<AxisId> Mesh::find(std::string_view name) const {
    for (size_t i = 0; i < axes_.size(); ++i)
        if (axes_[i].name == name) return static_cast<AxisId>(i);
    return std::nullopt;
}

int64_t Mesh::size(std::string_view name) const {
    const auto id = find(name);
    return id ? size(*id) : 1;
}

int64_t Mesh::ranks() const {
    int64_t n = 1;
    for (const Axis& axis : axes_)
        if (!axis.sequential) n *= axis.size;
    return n;
}

int64_t Mesh::microbatches() const { return sequential_axis() ? axes_.back().size : 1; }

std::optional<AxisId> Mesh::sequential_axis() const {
    if (axes_.empty() || !axes_.back().sequential) return std::nullopt;
    return static_cast<AxisId>(axes_.size()) - 1;
}

std::vector<int64_t> Mesh::coordinates(int64_t rank) const {
    assert(rank >= 0 && rank < ranks());
    std::vector<int64_t> result(axes_.size(), 0);
    for (size_t i = axes_.size(); i-- > 0;) {
        if (axes_[i].sequential) continue;
        result[i] = rank % axes_[i].size;
        rank /= axes_[i].size;
    }
    return result;
}

int64_t Mesh::rank_of(const std::vector<int64_t>& coordinates) const {
    assert(coordinates.size() == axes_.size());
    int64_t rank = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
        if (!axes_[i].sequential) rank = rank * axes_[i].size + coordinates[i];
    return rank;
}

std::vector<int64_t> Mesh::group(int64_t rank, AxisId along) const {
    if (axis(along).sequential) return {rank};
    std::vector<int64_t> place = coordinates(rank);
    std::vector<int64_t> members;
    for (int64_t i = 0; i < size(along); ++i) {
        place[static_cast<size_t>(along)] = i;
        members.push_back(rank_of(place));
    }
    return members;
}

Mesh Mesh::with_microbatches(int64_t n) const {
    std::vector<Axis> axes = axes_;
    if (!axes.empty() && axes.back().sequential) axes.pop_back();
    if (n > 1) axes.push_back({"micro", n, true});
    return Mesh(std::move(axes));
}

std::string Mesh::text() const {
    std::string result;
    for (const Axis& axis : axes_) {
        if (!result.empty()) result += ' ';
        result += fmt::format("{}={}", axis.name, axis.size);
    }
    return result;
}

}  // namespace orrery
