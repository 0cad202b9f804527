#pragma once
#include "orrery/program.h"

namespace orrery {

/// Removes values and ops that no result or update needs, and renumbers the others. Marks of values stay.
Program prune(const Program& program);

/// What is left of a step whose updates and results depend on no batch: a program of a round between two steps. The
/// step is annotated as any, so that params and states have its layouts, and stages of a pipeline that it would not
/// show without a forward pass (Value::stage).
///
///     %3 = matmul %0 %1    forward        ->   %1 = mul %0 0.5    update
///     %9 = mul %1 0.5      update              update %0 %1
///     update %1 %9
Program keep_update(const Program& marked, const Mesh& mesh);

/// The ops that compute the logits of the loss, with the result "logits"; no ops unless there is exactly one loss.
///
///     %3 = matmul %1 %2                   ->   %3 = matmul %1 %2
///     %4, %5 = cross_entropy %3 %0             result logits %3
Program keep_logits(const Program& forward);

}  // namespace orrery
