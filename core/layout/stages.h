#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Number of pipeline stages: size of the pipeline's axis times its chunks; 1 without a pipeline or without the axis.
int stage_count(const Program& program, const Mesh& mesh);

/// Assigns a pipeline stage to every forward and backward op; no effect when there is one stage. A forward op has the
/// stage of the innermost marked scope that contains it. Without a mark it has the latest stage of its inputs (0
/// without inputs) if a marked op depends on it, else the last stage. A backward op has the stage of its forward op.
/// Throws Error when a mark names a stage that does not exist, no scope is marked, or a stage has no forward op.
/// With the marks layers.0 = 0 and layers.1 = 1:
///
///     embed      %2 = embedding %0 %1    stage 0: layers.0 depends on it
///     layers.0   %4 = matmul %2 %3       stage 0
///     layers.1   %6 = matmul %4 %5       stage 1
///     head       %8 = matmul %6 %7       stage 1: the last one
void assign_stages(Program& program, const Mesh& mesh);

/// The stage of each param and state (by ValueId; none for other values): of a param and its states the first that
/// reads the param, of a state that the model reads (o.state) the first of the forward pass that does, else
/// Value::stage. The loss scale, which the model does not read, is of stage 0.
std::vector<int> home_stages(const Program& program);

}  // namespace orrery
