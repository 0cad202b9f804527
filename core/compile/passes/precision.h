#pragma once
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Rewrites a forward program traced in f32 to compute in another type; a no-op for f32. Call before differentiate.
/// Params stay f32 (the master copy) and are cast once each, by a value named "PARAM.bf16" that all consumers share:
/// those of two and more dims (embedding tables included) and the vectors that products and elementwise ops read.
/// Gains and biases of norms, statistics and losses stay f32; activations, the residual stream and logits follow the
/// compute type. An elementwise op on mixed operands computes in the compute type; an explicit cast to f32 stays.
/// f8e4m3, "fp8" in scripts, is bf16 with a mark (`f8`) on products of activations with matrices of params, but those
/// that make logits: quantize_products gives these operands of 8 bits. Embedding, norms and attention are as in bf16.
void set_precision(Program& program, DType compute);

/// Products that set_precision marked (`f8`), and those of their gradients, of a program with layouts: operands are
/// cast to 8 bits with a scale each, once for all readers in one stage, and the products read those. Weights and
/// activations are e4m3, gradients of activations e5m2 (Micikevicius et al. 2022, FP8 Formats for Deep Learning), and
/// the scale is that of what the rank holds at that moment (current scaling, per tensor, as NVIDIA's Transformer Engine
/// has it in Float8CurrentScaling). It runs behind propagation: what crosses ranks are floats of 16 and 32 bits, and
/// scales stay where they are made. What is kept for the backward pass is the 8-bit operand. Products whose local dims
/// 16 does not divide, which tensor cores lack, stay in 16 bits, with a remark. Linear in the program.
void quantize_products(Program& program, const Mesh& mesh);

}  // namespace orrery
