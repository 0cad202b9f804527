#pragma once
#include "orrery/program.h"

namespace orrery {

/// Rewrites a forward program traced in f32 to compute in another type; a no-op for f32. Call before differentiate.
/// Params stay f32 (the master copy) and are cast once each, by a value named "PARAM.bf16" that all consumers share:
/// those of two and more dims (embedding tables included) and the vectors that products and elementwise ops read.
/// Gains and biases of norms, statistics and losses stay f32; activations, the residual stream and logits follow the
/// compute type. An elementwise op on mixed operands computes in the compute type; an explicit cast to f32 stays.
void set_precision(Program& program, DType compute);

}  // namespace orrery
