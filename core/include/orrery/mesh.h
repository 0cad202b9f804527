#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// Index of an axis in its mesh: first the named ones, then those that they make together (Mesh::over).
using AxisId = int;

struct Axis {
    std::string name;  ///< "dp", "tp", "pp", ...
    int64_t size = 1;
    bool sequential = false;  ///< steps in time instead of ranks: "micro", the micro-batches of a step
};

/// Named axes over ranks, outermost first: rank = ((pp * dp_size) + dp) * tp_size + tp. At most one axis, `micro`,
/// is sequential; it comes last and does not count in the number of ranks.
class ORRERY_API Mesh {
public:
    Mesh() = default;
    /// Throws when a name repeats, is empty or has a '+', or a size is below 1.
    explicit Mesh(std::vector<Axis> axes);

    /// The named ones; layouts and marks have no others.
    const std::vector<Axis>& axes() const { return axes_; }
    const Axis& axis(AxisId id) const;
    /// A named one; nullopt when there is no such axis: its size is 1 and its marks are skipped.
    std::optional<AxisId> find(std::string_view name) const;

    /// The axis of a collective. "dp+tp" is made of dp and tp: its group are the ranks that differ along any of them,
    /// its size is the product of theirs. There is one for every two or more of the first eight axes of more than one
    /// rank, in the order of the mesh.
    std::optional<AxisId> over(std::string_view name) const;
    /// The one that these named axes make together, in any order; of one axis itself.
    std::optional<AxisId> together(std::vector<AxisId> axes) const;
    /// The named axes that an axis is made of, outermost first; of a named one itself.
    const std::vector<AxisId>& parts(AxisId id) const { return parts_.at(static_cast<size_t>(id)); }
    bool joined(AxisId id) const { return id >= static_cast<AxisId>(axes_.size()); }
    AxisId ids() const { return static_cast<AxisId>(parts_.size()); }  ///< ids are below it

    int64_t size(std::string_view name) const;  ///< 1 when absent
    int64_t size(AxisId id) const { return axis(id).size; }
    int64_t ranks() const;
    int64_t microbatches() const;                   ///< size of the sequential axis, 1 when absent
    std::optional<AxisId> sequential_axis() const;  ///< of the micro-batches; nullopt when there are none

    /// Coordinates of a rank, one per axis (0 for the sequential axis), and back.
    std::vector<int64_t> coordinates(int64_t rank) const;
    int64_t rank_of(const std::vector<int64_t>& coordinates) const;
    /// The ranks that differ from `rank` only along `axis`, in order of that coordinate, and its place among them.
    std::vector<int64_t> group(int64_t rank, AxisId axis) const;
    int64_t member(int64_t rank, AxisId axis) const;

    /// The same mesh with `micro` set to n (removed when n is 1).
    Mesh with_microbatches(int64_t n) const;
    /// "dp=2 tp=2"
    std::string text() const;
    bool operator==(const Mesh& other) const { return text() == other.text(); }

private:
    void join();

    std::vector<Axis> axes_;
    std::vector<Axis> joined_;
    std::vector<std::vector<AxisId>> parts_;  ///< by AxisId
};

}  // namespace orrery
