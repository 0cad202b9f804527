#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// A mark of one value, checked for a mesh, with the id of its axis in that mesh.
struct Target {
    AxisId axis = 0;
    Placement placement;
    Keep keep = Keep::step;
    bool optional = false;
    Origin origin;
};

/// The store and use marks of all values of a program for one mesh, by ValueId.
struct Marks {
    std::vector<std::vector<Target>> store;
    std::vector<std::vector<Target>> use;
};

/// Resolves the marks of a program for a mesh. Marks on axes that the mesh lacks or that have size 1 are dropped.
/// States and gradients inherit the store marks of their param on axes that they do not mark themselves. With
/// micro-batches, the dim `batch` of every input is also split over `micro`, innermost. Throws Error at a mark that
/// cannot be applied and is not optional, naming the value, the dim, the axis, their sizes and a remedy.
Marks collect_marks(const Program& program, const Mesh& mesh);

/// Returns a layout with marks applied in order. Of axes that split a dim, a mark's axis becomes the innermost.
Layout with_targets(Layout layout, const std::vector<Target>& targets);

/// Returns the layout in which ops should read a value: its stored layout `lies`, changed by its `use` marks except
/// those of Keep::part. When a dim is then not divisible, axes that no mark of the value names are removed from it,
/// innermost first.
Layout with_uses(const Layout& lies, const Shape& shape, const std::vector<Target>& uses,
                 const std::vector<Target>& stores, const Mesh& mesh);

}  // namespace orrery
