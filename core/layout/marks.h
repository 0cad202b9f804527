#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// A mark of one value on an axis of the mesh.
struct Target {
    AxisId axis = 0;
    Placement placement;
    Keep keep = Keep::step;
    bool optional = false;
    Origin origin;
};

/// The marks of a program for one mesh, by value.
struct Marks {
    std::vector<std::vector<Target>> store;
    std::vector<std::vector<Target>> use;
};

/// Resolves the marks of a program for a mesh. Marks on axes that the mesh lacks or that have size 1 are dropped.
/// States and gradients inherit the store marks of their param on axes that they do not mark themselves. With
/// micro-batches, the dim `batch` of every input is also split over `micro`, innermost. Throws Error at a mark that
/// cannot be applied and is not optional, naming the value, the dim, the axis, their sizes and a remedy.
Marks collect_marks(const Program& program, const Mesh& mesh);

/// Applies marks to a layout in order; a new split becomes the innermost of its dim.
Layout with_targets(Layout layout, const std::vector<Target>& targets);

/// The layout in which the `use` marks of a value of layout `lies` ask to read it. When a dim that they split is not
/// divisible, axes that no mark of the value names are removed from it, innermost first.
Layout with_uses(const Layout& lies, const Shape& shape, const std::vector<Target>& uses,
                 const std::vector<Target>& stores, const Mesh& mesh);

}  // namespace orrery
