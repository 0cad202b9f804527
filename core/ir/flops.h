#pragma once
#include <cstdint>

#include "orrery/program.h"

namespace orrery {

/// Floating-point operations of one op on its global shapes: a product of [m,k] and [k,n] counts 2 m n k, causal
/// attention half of the full square, with a window what that leaves of the half, an element of a cheap op 1 and of one
/// with exponentials or divisions 10.
int64_t flops(const Program& program, const Op& op);

/// flops() of a matrix product or an attention, 0 of any other op.
int64_t product_flops(const Program& program, const Op& op);

/// Of one training step, for model flops utilisation: the forward pass' matrix products and attentions, and up to two
/// of the same size for each in the backward pass, fewer where an input needs no gradient; two before differentiation.
/// What is recomputed does not count. More than 64 bits can hold.
double model_flops(const Program& program);

}  // namespace orrery
