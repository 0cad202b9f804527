#pragma once
#include <optional>
#include <span>
#include <vector>

#include "layout/factors.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

/// One input of an op, as `choose` needs it.
struct Candidate {
    const TensorType* type = nullptr;
    const Layout* preferred = nullptr;  ///< the layout to read it in if possible
    std::vector<const Layout*> held;    ///< the layouts in which it exists
    bool pinned = false;                ///< a strategy marked how it is stored or used: moved only as a last resort
    bool free = false;                  ///< costs nothing in any layout (a constant, random numbers)
};

/// The required layout of an output: all of it (`rest`, for updates) or some axes (`targets`, from marks).
struct Constraint {
    size_t output = 0;
    const TensorType* type = nullptr;
    std::optional<Layout> rest;
    std::vector<Target> targets;

    Layout from(const Layout& natural) const { return rest ? *rest : with_targets(natural, targets); }
};

/// Chooses the factor that each axis splits in one op. On each axis the op may run split by a factor that an input or a
/// constraint is split by, pass partial sums on (FactorRule::linear_in), or run replicated. The choice moves the fewest
/// bytes of pinned inputs, then the fewest bytes in total. Ties go to partial sums, then the inputs in order, then the
/// constraints, then replicated. It does not look beyond this op. Time is exponential in the number of axes.
Assignment choose(const FactorRule& rule, std::span<const Candidate> inputs, std::span<const Constraint> constraints,
                  Resharder& resharder, const Mesh& mesh);

}  // namespace orrery
