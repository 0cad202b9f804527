#pragma once
#include <optional>
#include <span>
#include <vector>

#include "layout/factors.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

struct Candidate {
    const TensorType* type = nullptr;
    const Layout* preferred = nullptr;  ///< layout in which the op should read the input if possible
    std::vector<const Layout*> held;    ///< layouts in which the input exists already
    /// True: a strategy placed the input with a mark, or it lists rows that the op picks. It is moved as a last resort.
    bool pinned = false;
    bool free = false;          ///< true: the input costs nothing in any layout (a constant, random numbers)
    std::vector<AxisId> parts;  ///< axes over which gathering the input costs nothing (Keep::part)
};

/// The layout that an output must have: on all axes (`rest`, for updates) or on some axes (`targets`, from marks).
struct Constraint {
    size_t output = 0;
    const TensorType* type = nullptr;
    std::optional<Layout> rest;
    std::vector<Target> targets;

    /// The layout to redistribute an output to when the op computes it as `natural`. Optional targets are left out
    /// where a dim is not divisible.
    Layout from(const Layout& natural, const Mesh& mesh) const;
};

/// Chooses the factor that each axis splits in one op; ignores all other ops. On an axis the op may be split by a
/// factor that an input or a constraint is split by, pass partial sums on (FactorRule::linear_in), or be replicated.
/// The choice moves the fewest bytes of pinned inputs, then the fewest bytes in total. Ties go to partial sums, then to
/// inputs in order, then to constraints, then to replicated. Time is exponential in the number of axes.
Assignment choose(const FactorRule& rule, std::span<const Candidate> inputs, std::span<const Constraint> constraints,
                  Resharder& resharder, const Mesh& mesh);

}  // namespace orrery
