#include "orrery/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace orrery {
namespace {
constexpr size_t most_parts = 8;  // max number of axes that are joined: 8 axes give 247 joined axes
}  // namespace

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
    for (size_t i = 0; i < axes_.size(); ++i) {
        const Axis& axis = axes_[i];
        if (axis.name.empty()) throw Error(fmt::format("axis {} of the mesh has no name", i));
        if (axis.name.find('+') != std::string::npos)
            throw Error(fmt::format("mesh axis \"{}\": the character + is reserved in names of axes; rename the axis",
                                    axis.name));
        if (axis.size < 1)
            throw Error(fmt::format("mesh axis {} has size {}, expected 1 or more; remove the axis to switch it off",
                                    axis.name, axis.size));
        if (axis.sequential && i + 1 != axes_.size())
            throw Error(fmt::format("mesh axis {} is sequential, so it must be the last axis of the mesh ({})",
                                    axis.name, text()));
        for (size_t j = 0; j < i; ++j)
            if (axes_[j].name == axis.name) throw Error(fmt::format("duplicate mesh axis {}: {}", axis.name, text()));
    }
    join();
}

void Mesh::join() {
    std::vector<AxisId> several;
    for (AxisId id = 0; id < std::ssize(axes_); ++id) {
        parts_.push_back({id});
        if (!axes_[id].sequential && axes_[id].size > 1 && several.size() < most_parts) several.push_back(id);
    }
    for (unsigned chosen = 1; chosen < 1u << several.size(); ++chosen) {
        if ((chosen & (chosen - 1)) == 0) continue;
        std::vector<AxisId>& parts = parts_.emplace_back();
        Axis& all = joined_.emplace_back();
        for (size_t i = 0; i < several.size(); ++i) {
            if ((chosen >> i & 1) == 0) continue;
            parts.push_back(several[i]);
            const Axis& part = axes_[several[i]];
            all.name += (all.name.empty() ? "" : "+") + part.name;
            all.size *= part.size;
        }
    }
}

const Axis& Mesh::axis(AxisId id) const {
    const size_t i = id;
    return i < axes_.size() ? axes_[i] : joined_.at(i - axes_.size());
}

std::optional<AxisId> Mesh::find(std::string_view name) const {
    for (size_t i = 0; i < axes_.size(); ++i)
        if (axes_[i].name == name) return i;
    return std::nullopt;
}

std::optional<AxisId> Mesh::over(std::string_view name) const {
    for (size_t i = 0; i < joined_.size(); ++i)
        if (joined_[i].name == name) return axes_.size() + i;
    return find(name);
}

std::optional<AxisId> Mesh::together(std::vector<AxisId> axes) const {
    std::sort(axes.begin(), axes.end());
    const auto found = std::find(parts_.begin(), parts_.end(), axes);
    if (found == parts_.end()) return std::nullopt;
    return static_cast<AxisId>(found - parts_.begin());
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
    return std::ssize(axes_) - 1;
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
        int64_t rest = i;
        for (size_t k = parts(along).size(); k-- > 0;) {  // the innermost axis varies fastest, as in the order of ranks
            const AxisId part = parts(along)[k];
            place[part] = rest % size(part);
            rest /= size(part);
        }
        members.push_back(rank_of(place));
    }
    return members;
}

int64_t Mesh::member(int64_t rank, AxisId along) const {
    const std::vector<int64_t> place = coordinates(rank);
    int64_t member = 0;
    for (const AxisId part : parts(along)) member = member * size(part) + place[part];
    return member;
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
