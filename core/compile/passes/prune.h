#pragma once
#include "orrery/program.h"

namespace orrery {

/// Removes values and ops that no result or update needs, and renumbers the others. Marks of values stay.
Program prune(const Program& program);

/// Reduces a step to its updates and results, for a program of a round that takes no batch. Drops the forward and
/// backward pass. Input: the annotated step, so params and states have the layouts of other steps. With a pipeline it
/// sets Value::stage, which ops of a forward pass would otherwise determine.
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
