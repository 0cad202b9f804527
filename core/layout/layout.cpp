#include "orrery/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace orrery {

std::string_view name_of(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum: return "sum";
        case ReduceOp::max: return "max";
        case ReduceOp::min: return "min";
    }
    return "?";
}

std::string Placement::text() const {
    switch (kind) {
        case Kind::split: return fmt::format("S({})", dim);
        case Kind::partial: return fmt::format("P({})", name_of(op));
        case Kind::replicate: break;
    }
    return "R";
}

Placement Layout::at(AxisId axis) const {
    for (const Partial& partial : partials_)
        if (partial.axis == axis) return Placement::partial(partial.op);
    for (size_t dim = 0; dim < splits_.size(); ++dim)
        if (std::find(splits_[dim].begin(), splits_[dim].end(), axis) != splits_[dim].end())
            return Placement::split(dim);
    return Placement::replicated();
}

void Layout::set(AxisId axis, Placement placement) {
    for (auto& axes : splits_) std::erase(axes, axis);
    std::erase_if(partials_, [&](const Partial& partial) { return partial.axis == axis; });
    switch (placement.kind) {
        case Placement::Kind::replicate: break;
        case Placement::Kind::split:
            assert(placement.dim >= 0 && placement.dim < std::ssize(splits_));
            splits_[placement.dim].push_back(axis);
            break;
        case Placement::Kind::partial: {
            const auto place = std::find_if(partials_.begin(), partials_.end(),
                                            [&](const Partial& partial) { return partial.axis > axis; });
            partials_.insert(place, {axis, placement.op});
            break;
        }
    }
}

bool Layout::replicated() const {
    return partials_.empty() &&
           std::all_of(splits_.begin(), splits_.end(), [](const auto& axes) { return axes.empty(); });
}

Shape Layout::local_shape(const Shape& global, const Mesh& mesh) const {
    assert(splits_.empty() || splits_.size() == global.size());
    Shape local = global;
    for (size_t dim = 0; dim < splits_.size(); ++dim) {
        int64_t parts = 1;
        for (AxisId axis : splits_[dim]) parts *= mesh.size(axis);
        local[dim] = global[dim] / parts;
        if (local[dim] * parts == global[dim]) continue;
        std::string axes;
        for (AxisId axis : splits_[dim])
            axes += fmt::format("{}{}={}", axes.empty() ? "" : " ", mesh.axis(axis).name, mesh.size(axis));
        throw Error(
            fmt::format("dim {} of {} has size {}, which {} does not divide into {} equal parts; "
                        "make it a multiple of {}, or split another dim",
                        dim, text_of(global), global[dim], axes, parts, parts));
    }
    return local;
}

Shape Layout::offset(const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro) const {
    const Shape local = local_shape(global, mesh);
    const std::vector<int64_t> place = mesh.coordinates(rank);
    Shape result(global.size(), 0);
    for (size_t dim = 0; dim < splits_.size(); ++dim) {
        int64_t block = 0;
        for (AxisId axis : splits_[dim])
            block = block * mesh.size(axis) + (mesh.axis(axis).sequential ? micro : place[axis]);
        result[dim] = block * local[dim];
    }
    return result;
}

std::string Layout::text(const Mesh& mesh) const {
    // Axes are in mesh order, except that the axes of one dim are in the order in which they split it, so that the text
    // determines the layout.
    std::vector<AxisId> order;
    std::vector<size_t> next(splits_.size(), 0);
    for (size_t i = 0; i < mesh.axes().size(); ++i) {
        const Placement here = at(i);
        order.push_back(here.kind == Placement::Kind::split ? splits_[here.dim][next[here.dim]++]
                                                            : static_cast<AxisId>(i));
    }
    std::string result;
    for (AxisId axis : order) {
        if (mesh.size(axis) == 1) continue;
        if (!result.empty()) result += ' ';
        result += fmt::format("{}:{}", mesh.axis(axis).name, at(axis).text());
    }
    return result;
}

}  // namespace orrery
