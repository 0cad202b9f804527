#pragma once
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/tensor.h"

namespace orrery {

enum class ReduceOp : uint8_t { sum, max, min };
ORRERY_API std::string_view name_of(ReduceOp op);

/// What one axis does to a tensor: S(dim), R, or P(op).
struct Placement {
    enum class Kind : uint8_t { replicate, split, partial };
    Kind kind = Kind::replicate;
    int dim = -1;                 ///< split only
    ReduceOp op = ReduceOp::sum;  ///< partial only

    static Placement replicated() { return {}; }
    static Placement split(int dim) { return {Kind::split, dim, ReduceOp::sum}; }
    static Placement partial(ReduceOp op) { return {Kind::partial, -1, op}; }
    ORRERY_API std::string text() const;  ///< "S(0)", "R", "P(sum)"
    bool operator==(const Placement&) const = default;
};

/// How a tensor lies on a mesh. Each dim has an ordered list of axes that split it (outermost first); some axes hold
/// partial values; over every other axis the tensor is replicated.
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
    const std::vector<Partial>& partials() const { return partials_; }  ///< sorted by axis

    Placement at(AxisId axis) const;
    /// Replaces what the axis does; a new split goes innermost in its dim's list.
    void set(AxisId axis, Placement placement);
    bool replicated() const;

    /// The block that one rank holds. Throws when a dim is not divisible, naming dim, size and axes.
    Shape local_shape(const Shape& global, const Mesh& mesh) const;
    /// Index of the first element that a rank holds, one per dim. `micro` is the sequential axis' coordinate.
    Shape offset(const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro = 0) const;
    /// "dp:S(0) tp:R"; axes of size 1 are left out. Two axes on one dim print as "dp:S(0) tp:S(0)" in split order.
    std::string text(const Mesh& mesh) const;
    bool operator==(const Layout&) const = default;

private:
    std::vector<std::vector<AxisId>> splits_;
    std::vector<Partial> partials_;
};

}  // namespace orrery
