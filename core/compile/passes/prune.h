#pragma once
#include "orrery/program.h"

namespace orrery {

/// Removes ops that no result needs, and renumbers the others. The program must have no marks, gradients or updates.
Program prune(const Program& program);

/// The ops that compute the logits of the loss, with the result "logits"; no ops unless there is exactly one loss.
///
///     %3 = matmul %1 %2                   ->   %3 = matmul %1 %2
///     %4, %5 = cross_entropy %3 %0             result logits %3
Program keep_logits(const Program& forward);

}  // namespace orrery
