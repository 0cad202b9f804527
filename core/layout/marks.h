#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// What marks ask of one value on one axis, with the axis found in the mesh.
struct Target {
    AxisId axis = 0;
    Placement placement;
    Keep keep = Keep::step;
    bool optional = false;
    Origin origin;
};

/// The marks of a program, resolved against a mesh. Indexed by value.
struct Marks {
    std::vector<std::vector<Target>> store;
    std::vector<std::vector<Target>> use;
};

/// Looks the axes up (those that the mesh lacks, or of size 1, are dropped), gives states the store targets of their
/// param on the axes that they do not mark themselves, and every input with a dim named `batch` the split of that dim
/// over `micro`, innermost. Throws Error naming the value, the dim's name and size, the axis and its size, the mark's
/// origin and the remedy, when a mark cannot be honoured and is not optional.
Marks collect_marks(const Program& program, const Mesh& mesh);

/// Applies targets to a layout, in their order: each new split goes innermost in its dim.
Layout with_targets(Layout layout, const std::vector<Target>& targets);

/// How `use` marks ask a value of this shape to be read that lies like this. Where a dim that they split does not
/// divide, axes that came by inference, and no mark of the value, give way: the innermost first.
Layout with_uses(const Layout& lies, const Shape& shape, const std::vector<Target>& uses,
                 const std::vector<Target>& stores, const Mesh& mesh);

}  // namespace orrery
