#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Appends the backward pass of a scalar loss. Sets the gradient of every param that the loss depends on (set_grad), in
/// f32 and named "PARAM.grad". `seed`: an f32 scalar that multiplies all gradients (a loss scale); none: 1. Cross
/// entropies also compute the gradient of their logits (grad = true). Returns the gradient of each value of the forward
/// program, none if it has none or only a symbolic one. Throws Error if the loss is not an f32 scalar or depends on no
/// param, or at an op without a gradient. Linear.
///
///     forward   %2 = matmul %0 %1      f32[8,10]        forward   %2 = matmul %0 %1
///               %3 = sumsq %2          f32[]                      %3 = sumsq %2
///                                                 ->    backward  %4 = scale %2 {by=2.0}             of %3
///                                                                 %5 w.grad = matmul_dw %0 %4        of %2
std::vector<ValueId> differentiate(Program& program, ValueId loss, ValueId seed = none);

}  // namespace orrery
