// From a spec to calls of kernels; both builds have it. The lines agree with those of plugins/device/cpu.
#pragma once

#include <functional>
#include <span>

#include "kernels/cuda/call.h"
#include "kernels/cuda/epilogue.h"
#include "kernels/cuda/kernels.h"

namespace orrery::kernels::ORRERY_BLOCKS {

using cuda::Operand;
using cuda::Refused;
using cuda::Spec;
using Sizes = std::vector<std::int64_t>;

/// An operand of one launch.
struct Tensor {
    void* data = nullptr;
    Type type = Type::f32;
    i64 bytes = 0;
};

using Operands = std::span<const Tensor>;
/// Queues everything on the call's stream; a rehearsal finds scratch and algorithms.
using Launch = std::function<void(Call&, Operands)>;

/// What a maker sees.
struct Request {
    const Spec& spec;

    const Operand& input(size_t i) const { return spec.inputs[i]; }
    const Operand& output(size_t i) const { return spec.outputs[i]; }
    /// Place of the first output among the operands.
    size_t out() const { return spec.inputs.size(); }
    bool accumulate() const { return spec.flag("accumulate"); }
    bool has(std::string_view attribute) const;
    /// Offset of this rank's shard along a dim of the operand that matters; 0 when unsharded.
    i64 offset(size_t dim) const;
    /// Whether the gelu is the erf form, not the tanh one; refuses any other word.
    bool erf() const;
    [[noreturn]] void refuse(const std::string& why) const;
};

/// One line of the table: an op, its operands and who makes the call.
/// f: float, all f's of one type; F: float of any type; s: f32; i: i32; u: u32; b: u8; n: i32, or the type of an f;
/// *: anything; ?: may be absent; ...: any number of the one before.
struct Rule {
    const char* op;
    const char* operands;
    Launch (*make)(const Request&);
    bool accumulates = false;
};

std::span<const Rule> elementwise_rules();
std::span<const Rule> contraction_rules();
std::span<const Rule> row_rules();
std::span<const Rule> shape_rules();

/// All ops with a kernel.
std::vector<std::string> rule_ops();
/// Throws Refused with the reason when the spec cannot run. Asks no driver.
Launch resolve(const Spec& spec);

/// A spec that has been rehearsed: it knows its scratch and its algorithms.
class SpecKernel {
public:
    SpecKernel(const Spec& spec, Call& rehearsal);
    i64 scratch_bytes() const { return scratch_; }
    const std::string& how() const { return how_; }
    /// Operands: inputs, then outputs.
    void run(Call& call, std::span<void* const> operands);

private:
    Launch launch_;
    std::vector<Tensor> tensors_;
    i64 scratch_ = 0;
    std::string how_;
};

/// The kernels of this folder; products and attention without the vendor's libraries.
const Kernels& table();

/// A product by the library of the build, or by a kernel of ours; pre only with a gelu that keeps it.
using ProductCall = std::function<void(Call&, In a, In b, In bias, Out y, Out pre)>;
ProductCall library_product(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre = false);
/// dx = gelu'(pre) * (a b).
using GeluGradCall = std::function<void(Call&, In a, In b, In pre, Out dx)>;
GeluGradCall library_gelu_grad(const Matmul& sizes, UnaryGrad op);
/// dw [m,n] = a b and dbias [n] = the sum of the rows of b [k,n], both f32; sizes.accumulate concerns both.
using BiasGradCall = std::function<void(Call&, In a, In b, Out dw, Out dbias)>;
BiasGradCall library_bias_grad(const Matmul& sizes);
/// q, k, v -> o, lse; and q, k, v, o, lse, d_o -> dq, dk, dv.
Launch library_attention(const Attention& sizes, Type type);
Launch library_attention_grad(const Attention& sizes, Type type);

inline In in(const Tensor& t) { return {t.data, t.type}; }
inline Out out(const Tensor& t) { return {t.data, t.type}; }
inline i64 rows_of(const Operand& type) { return type.rows(); }
inline i64 cols_of(const Operand& type) { return type.cols(); }

/// Dense copy of bytes within the device.
void copy_dense(Call& call, const void* from, void* to, i64 n);

}  // namespace orrery::kernels::ORRERY_BLOCKS
