#pragma once
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// Appends the backward pass of a scalar loss and records the gradient of every param that it reaches (set_grad), in
/// f32 and named "PARAM.grad". Nothing is computed for inputs, integers and what no param needs. Cross entropies on the
/// way also produce their dlogits (grad = true). `seed`: a scalar f32 that all gradients are multiplied by (a loss
/// scale); none: 1. Linear in the number of ops.
/// A gradient names its dims as its value does. Returns, for every value of the forward program, its gradient; none
/// where there is none or none was needed as a value.
/// Throws when the loss is not an f32 scalar, when no param reaches it, or naming an op that has no gradient.
std::vector<ValueId> differentiate(Program& program, ValueId loss, ValueId seed = none);

}  // namespace orrery
