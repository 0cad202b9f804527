// Rules of the CUDA kernels in addition to kernels/rules, for both builds.
#pragma once

#include <functional>
#include <span>

#include "kernels/cuda/call.h"
#include "kernels/cuda/kernels.h"
#include "kernels/rules/rules.h"

namespace orrery::kernels::ORRERY_BLOCKS {

using cuda::Operand;
using cuda::Refused;
using cuda::Spec;
using rules::Epilogue;
using rules::in;
using rules::Operands;
using rules::out;
using rules::Tensor;

/// Queues the op on the call's stream; in a rehearsal determines scratch and algorithms.
using Launch = std::function<void(Call&, Operands)>;

/// Throws Refused with the reason when the spec cannot run. Number and types of operands must be those of the op's
/// definition, as in why_not. Calls no driver.
rules::Launch resolve(const Spec& spec);

/// A rehearsed spec, with its scratch size and its algorithms.
class SpecKernel {
public:
    SpecKernel(const Spec& spec, Call& rehearsal);
    i64 scratch_bytes() const { return scratch_; }
    const std::string& how() const { return how_; }
    /// Operands: inputs, then outputs.
    void run(Call& call, std::span<void* const> operands);

private:
    rules::Launch launch_;
    std::vector<Tensor> tensors_;
    i64 scratch_ = 0;
    std::string how_;
};

/// The kernels of this folder; products and attention without the vendor's libraries.
const Kernels& table();

/// A product by the build's library, or by a kernel of ours; pre only for a gelu that stores it.
using ProductCall = std::function<void(Call&, In a, In b, In bias, Out y, Out pre)>;
ProductCall library_product(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre = false);
/// dx = gelu'(pre) * (a b).
using GeluGradCall = std::function<void(Call&, In a, In b, In pre, Out dx)>;
GeluGradCall library_gelu_grad(const Matmul& sizes, UnaryGrad op);
/// dw [m,n] = a b and dbias [n] = the sum of the rows of b [k,n], both f32; sizes.accumulate applies to both.
using BiasGradCall = std::function<void(Call&, In a, In b, Out dw, Out dbias)>;
BiasGradCall library_bias_grad(const Matmul& sizes);
/// q, k, v -> o, lse; and q, k, v, o, lse, d_o -> dq, dk, dv.
Launch library_attention(const Attention& sizes, Type type);
Launch library_attention_grad(const Attention& sizes, Type type);

/// A loss in tiles, with matrix products made by `product`.
using TileProduct = std::function<void(Call&, const Matmul&, In a, In b, In bias, Out y)>;
void tiled_loss(Call& call, const TiledLoss& sizes, const TiledLossData& data, const TileProduct& product);

void copy_dense(Call& call, const void* from, void* to, i64 n);

}  // namespace orrery::kernels::ORRERY_BLOCKS
