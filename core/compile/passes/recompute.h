#pragma once
#include "orrery/program.h"

namespace orrery {

/// Applies the recompute marks of a differentiated program: backward ops read copies of forward values, recomputed
/// right before their first reader. A mark without kinds is for the backward ops of its scope: copies are computed from
/// the values that the scope reads; other readers read the saved values. A mark with kinds recomputes the outputs of
/// ops of these kinds for every backward reader. Dropout draws the same numbers again. Casts of params and losses are
/// never recomputed. Values keep their ids. Throws Error at a mark without a matching op.
///
///     forward   %3 = gelu %2                     forward   %3 = gelu %2
///     backward  %7 = matmul_dw %3 %6        ->   backward  %9 = gelu %2             of %3
///                                                          %7 = matmul_dw %9 %6
Program recompute(const Program& program);

}  // namespace orrery
