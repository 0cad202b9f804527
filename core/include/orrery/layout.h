#pragma once
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/tensor.h"

namespace orrery {

enum class ReduceOp : uint8_t { sum, max, min };
ORRERY_API std::string_view name_of(ReduceOp op);

/// The effect of one mesh axis on a tensor: split along a dim S(dim), replicated R, or partial P(op).
struct Placement {
    enum class Kind : uint8_t { replicate, split, partial };
    Kind kind = Kind::replicate;
    int dim = -1;                 ///< tensor dim that is split (Kind::split only)
    ReduceOp op = ReduceOp::sum;  ///< reduction of partial values (Kind::partial only)

    static Placement replicated() { return {}; }
    static Placement split(int dim) { return {Kind::split, dim, ReduceOp::sum}; }
    static Placement partial(ReduceOp op) { return {Kind::partial, -1, op}; }
    ORRERY_API std::string text() const;  ///< "S(0)", "R", "P(sum)"
    bool operator==(const Placement&) const = default;
};

/// The placement of a tensor on a mesh. Each dim has an ordered list of the axes that split it, outermost first; some
/// axes hold partial values; over every other axis the tensor is replicated.
class ORRERY_API Layout {
public:
    Layout() = default;
    explicit Layout(size_t rank) : splits_(rank) {}

    const std::vector<std::vector<AxisId>>& splits() const { return splits_; }
    struct Partial {
        AxisId axis;
        ReduceOp op;
        bool operator==(const Partial&) const = default;
    };
    const std::vector<Partial>& partials() const { return partials_; }  ///< axes that hold partial values, sorted

    Placement at(AxisId axis) const;
    /// Sets the placement on one axis; a new split becomes the innermost of its dim.
    void set(AxisId axis, Placement placement);
    bool replicated() const;

    /// The shape of the block of one rank. Throws Error when a dim is not divisible, naming dim, size and axes.
    Shape local_shape(const Shape& global, const Mesh& mesh) const;
    /// Index of the first element of the block of `rank`, by dim. `micro` is the coordinate on the sequential axis.
    Shape offset(const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro = 0) const;
    /// Text "dp:S(0) tp:R", without axes of size 1. Axes that split one dim are in split order: "dp:S(0) tp:S(0)".
    std::string text(const Mesh& mesh) const;
    bool operator==(const Layout&) const = default;

private:
    std::vector<std::vector<AxisId>> splits_;
    std::vector<Partial> partials_;
};

}  // namespace orrery
