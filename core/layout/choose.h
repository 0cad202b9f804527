#pragma once
#include <optional>
#include <span>
#include <vector>

#include "layout/factors.h"
#include "layout/marks.h"
#include "layout/reshard.h"

namespace orrery {

/// One input of an op, as the choice sees it.
struct Candidate {
    const TensorType* type = nullptr;
    const Layout* preferred = nullptr;  ///< the layout that it would like to be read in
    std::vector<const Layout*> held;    ///< the layouts in which it exists
    bool pinned = false;                ///< a strategy said how it is read: moving it is the last resort
    bool free = false;                  ///< made anywhere at no cost (constants, random numbers)
};

/// How an output has to lie afterwards: all of it (the target of an update), or some axes (marks).
struct Constraint {
    size_t output = 0;
    const TensorType* type = nullptr;
    std::optional<Layout> rest;
    std::vector<Target> targets;

    Layout from(const Layout& natural) const { return rest ? *rest : with_targets(natural, targets); }
};

/// Decides which factors the axes split. On each axis an op may run split by a factor that an input or a constraint
/// asks for, pass Partial on, or run replicated. Taken is what moves the fewest bytes of pinned inputs, then the fewest
/// bytes; ties go to Partial passed on, then the inputs in order, then the constraints, then replicated. Local: it does
/// not look beyond the op.
Assignment choose(const FactorRule& rule, std::span<const Candidate> inputs, std::span<const Constraint> constraints,
                  Resharder& resharder, const Mesh& mesh);

}  // namespace orrery
