#pragma once
#include <cstdint>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Applies the recompute marks of a differentiated program: backward ops read copies of forward values, recomputed
/// right before the gradients of the op that reads them, so that a gather of a copy overlaps with the first of these. A
/// mark without kinds is for the backward ops of its scope: copies are computed from the values that the scope reads;
/// other readers read the saved values. A mark with kinds recomputes the outputs of ops of these kinds for every
/// backward reader. Dropout draws the same numbers again. Casts of params and losses are never recomputed. Values keep
/// their ids. Adds a remark for each kind that frees next to nothing. Throws Error at a mark without a matching op.
///
///     forward   %3 = gelu %2                     forward   %3 = gelu %2
///     backward  %7 = matmul_dw %3 %6        ->   backward  %9 = gelu %2             of %3
///                                                          %7 = matmul_dw %9 %6
Program recompute(const Program& program);

/// As recompute(), by `marks` instead of the program's own, without remarks; marks that match no op are ignored.
Program recompute_by(const Program& program, std::vector<ScopeMark> marks);

/// A kind of op that frees less than this share of saved bytes frees next to nothing.
constexpr double least_freed = 0.01;

/// Bytes of what the forward pass saves for the backward pass, on one device: results of forward ops that backward ops
/// read, each memory once. Copies of params do not count.
int64_t saved_bytes(const Program& program);

}  // namespace orrery
