#pragma once
#include <cstdint>

#include "orrery/program.h"

namespace orrery {

/// Floating-point operations of one op on its global shapes. A product of [m,k] and [k,n] counts 2 m n k. Causal
/// attention counts half of the full square; with a window, only the query-key pairs inside it. Elementwise ops count 1
/// per element, or 10 with exponentials or divisions.
int64_t flops(const Program& program, const Op& op);

/// Floating-point operations of a GEMM or an attention; 0 for any other op.
int64_t product_flops(const Program& program, const Op& op);

/// As product_flops, without the gradients that a loss in tiles computes in its forward op after differentiation.
int64_t forward_flops(const Program& program, const Op& op);

/// What attention under a mask counts as: the query-key pairs that are read (of a causal mask half), or all pairs, as
/// PaLM (Chowdhery et al. 2022) and Megatron-LM count them.
enum class MaskedPairs { left_out, counted };

/// FLOPs of one training step, as model FLOPs utilization counts them: GEMMs and attentions of the forward pass and of
/// its gradients. Gradients of an op count at most twice the FLOPs of the op, which leaves out recomputed attention
/// scores; exactly twice before differentiation and for ops of plugins. May exceed 64 bits.
/// A grouped GEMM counts the rows that tokens choose, or all slots if those are fewer.
double model_flops(const Program& program, MaskedPairs masked = MaskedPairs::left_out);

/// Number of active params: those that one token uses. Of a mixture's E experts top_k count.
int64_t active_parameters(const Program& program);

}  // namespace orrery
