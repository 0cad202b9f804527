#pragma once
#include <cstdint>

#include "orrery/program.h"

namespace orrery {

/// Floating-point operations of one op on its global shapes: a product of [m,k] and [k,n] counts 2 m n k, causal
/// attention half of the full square, an element of a cheap op 1 and of one with exponentials or divisions 10.
int64_t flops(const Program& program, const Op& op);

/// The sum over all ops of one phase.
int64_t flops(const Program& program, Phase phase);

/// The convention of model flops utilisation for one training step: 6 x (elements of params that are read by products)
/// x tokens, plus 12 x B x T x S x H x D for each attention (half when causal). `tokens`: positions of the step.
int64_t model_flops(const Program& program, int64_t tokens);

}  // namespace orrery
