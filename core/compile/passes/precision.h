#pragma once
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Rewrites a forward program recorded in f32 to compute in another type; no effect for f32. Call it before
/// `differentiate`. Params stay f32. A param is cast once, to a value "PARAM.bf16" that all its readers share, when it
/// is a matrix or when a GEMM or an elementwise op in the compute type reads it. Gains and biases of norms, statistics
/// and losses stay f32. An elementwise op on mixed operands computes in the compute type.
///
///     %2 = matmul %0 %1  f32[8,10]   ->   %5 w.bf16 = cast %1 {dtype=bf16}  bf16[6,10]
///                                         %2 = matmul %0 %5                 bf16[8,10]    (%0 is bf16, too)
///
/// f8e4m3 ("fp8" in scripts) is bf16, with the mark `f8` on GEMMs of activations and matrices of params except those
/// that compute the logits. `quantize_products` gives the marked ones 8-bit operands.
void set_precision(Program& program, DType compute);

/// Gives GEMMs that set_precision marked, and those of their gradients, 8-bit operands. An operand is cast once for all
/// readers of a stage, by one scale per rank: weights and activations to e4m3, gradients of activations to e5m2
/// (Micikevicius et al. 2022, FP8 Formats for Deep Learning; scales as Float8CurrentScaling of NVIDIA's Transformer
/// Engine). It runs after propagation: values are sent in 16 or 32 bits, scales are not sent. The backward pass reads
/// the saved 8-bit operands. A GEMM whose local dims 16 does not divide stays in 16 bits, with a remark. Linear.
///
///     %5 = matmul %3 %4 {f8=true}  bf16   ->   %6, %7 = quantize %3  f8e4m3, f32[]
///                                              %8, %9 = quantize %4  f8e4m3, f32[]
///                                              %5 = matmul_quantized %6 %8 %7 %9  bf16
void quantize_products(Program& program, const Mesh& mesh);

}  // namespace orrery
