#pragma once
#include "orrery/program.h"

namespace orrery {

/// How many pipeline stages a program has on a mesh: ranks of its pipeline's axis times chunks; 1 without a pipeline,
/// or where the mesh lacks the axis.
int stage_count(const Program& program, const Mesh& mesh);

/// Gives every op of the forward and backward pass a stage. A forward op takes the mark of the innermost marked scope
/// around it. Without one: what marked ops depend on runs where its own inputs come from (stage 0 when they come from
/// nowhere), what depends on marked ops alone, on the last stage. A backward op runs where its forward op does. Does
/// nothing for a program of one stage. Throws Error where a mark names a stage that is not there or scopes are marked
/// without a pipeline.
void assign_stages(Program& program, const Mesh& mesh);

}  // namespace orrery
