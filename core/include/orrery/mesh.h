#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// Index of an axis in its mesh: the named axes first, then the joined axes made of several (Mesh::over).
using AxisId = int;

struct Axis {
    std::string name;  ///< "dp", "tp", "pp", ...
    int64_t size = 1;
    bool sequential = false;  ///< steps in time instead of ranks: "micro", the micro-batches of a step
};

/// Named axes over ranks, outermost first: rank = ((pp * dp_size) + dp) * tp_size + tp. Only one axis, `micro`, may be
/// sequential; it is the last one and does not count in the number of ranks.
class ORRERY_API Mesh {
public:
    Mesh() = default;
    /// Throws Error when an axis name repeats, is empty or contains '+', or when a size is below 1.
    explicit Mesh(std::vector<Axis> axes);

    /// The named axes; layouts and marks use only these.
    const std::vector<Axis>& axes() const { return axes_; }
    const Axis& axis(AxisId id) const;
    /// Finds a named axis; nullopt when it is absent, which means that its size is 1 and that its marks are skipped.
    std::optional<AxisId> find(std::string_view name) const;

    /// Finds the axis of a collective, named or joined. The group of the joined axis "dp+tp" is the ranks that differ
    /// along dp or tp; its size is the product of both sizes. A joined axis exists for every two or more of the first
    /// eight axes of more than one rank, with the names in mesh order.
    std::optional<AxisId> over(std::string_view name) const;
    /// Returns the joined axis of several named axes, given in any order; for a single axis, that axis.
    std::optional<AxisId> together(std::vector<AxisId> axes) const;
    /// The named axes that make up an axis, outermost first; for a named axis, itself.
    const std::vector<AxisId>& parts(AxisId id) const { return parts_.at(static_cast<size_t>(id)); }
    bool joined(AxisId id) const { return id >= static_cast<AxisId>(axes_.size()); }
    AxisId ids() const { return static_cast<AxisId>(parts_.size()); }  ///< number of axes, joined ones included

    int64_t size(std::string_view name) const;  ///< number of ranks along an axis; 1 when it is absent
    int64_t size(AxisId id) const { return axis(id).size; }
    int64_t ranks() const;
    int64_t microbatches() const;                   ///< size of the sequential axis, 1 when absent
    std::optional<AxisId> sequential_axis() const;  ///< the axis of the micro-batches; nullopt when absent

    /// The coordinates of a rank, one per axis (0 on the sequential axis); rank_of() is the inverse.
    std::vector<int64_t> coordinates(int64_t rank) const;
    int64_t rank_of(const std::vector<int64_t>& coordinates) const;
    /// The ranks that differ from `rank` only along `axis`, by coordinate; member() is the index of `rank` in them.
    std::vector<int64_t> group(int64_t rank, AxisId axis) const;
    int64_t member(int64_t rank, AxisId axis) const;

    /// The same mesh with `micro` set to n (removed when n is 1).
    Mesh with_microbatches(int64_t n) const;
    /// The mesh as text: "dp=2 tp=2".
    std::string text() const;
    bool operator==(const Mesh& other) const { return text() == other.text(); }

private:
    void join();

    std::vector<Axis> axes_;
    std::vector<Axis> joined_;
    std::vector<std::vector<AxisId>> parts_;  ///< the named axes that make up each axis, by AxisId
};

}  // namespace orrery
