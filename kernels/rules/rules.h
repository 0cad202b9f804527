// Maps a spec to a call of kernels: what an op's shapes and attributes must be, and which kernel runs. Devices add what
// differs between them, and check number and types of operands before, by the op's definition.
#pragma once

#include <cassert>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/rules/epilogue.h"
#include "kernels/rules/spec.h"

namespace orrery::kernels::rules {

using i64 = std::int64_t;
using Sizes = std::vector<i64>;

/// An operand of one launch.
struct Tensor {
    void* data = nullptr;
    Type type = Type::f32;
    i64 bytes = 0;
};

using Operands = std::span<const Tensor>;  ///< inputs, then outputs
using Launch = std::function<void(Context&, Operands)>;

/// What a device adds to the rules. Launches get the op's operands.
struct Target {
    const Kernels& kernels;
    bool norms_of_one_type = false;  ///< x, y and their gradients must have one type
    i64 most_head_dim = 0;           ///< 0: any
    void (*copy)(Context&, const void* from, void* to, i64 bytes) = nullptr;
    Launch (*product)(const Kernels&, const Matmul&, Epilogue, bool bias, bool keeps_pre) = nullptr;
    Launch (*bias_grad)(const Kernels&, const Matmul&) = nullptr;
    // nullptr: use the kernel of the table.
    Launch (*gelu_grad)(const Matmul&, UnaryGrad) = nullptr;
    Launch (*attention)(const Attention&, Type, bool gradient) = nullptr;
    /// `attention` takes an index, values of another head size and a gradient of lse; otherwise they are refused.
    bool attention_by_index = false;
    std::function<void(Context&, const TiledLoss&, const TiledLossData&)> (*tiled_loss)() = nullptr;
};

/// The input of a rule's make().
struct Request {
    const Spec& spec;
    const Target& target;

    // Their number is checked by resolve()'s caller, against the op's definition.
    const Operand& input(size_t i) const {
        assert(i < spec.inputs.size());
        return spec.inputs[i];
    }
    const Operand& output(size_t i) const {
        assert(i < spec.outputs.size());
        return spec.outputs[i];
    }
    /// Index of the first output among the operands.
    size_t out() const { return spec.inputs.size(); }
    bool accumulate() const { return spec.flag("accumulate"); }
    bool has(std::string_view attribute) const;
    /// A number that the op's definition always writes; refuses when it is absent.
    double given(std::string_view attribute) const;
    /// Offset of this rank's shard along a dim of the relevant operand; 0 when unsharded.
    i64 offset(size_t dim) const;
    /// The attribute `dim`, counted from 0, for an operand with `rank` dims; refuses one out of range.
    size_t dim(size_t rank) const;
    /// Whether the gelu is the erf form instead of the tanh one; refuses any other word.
    bool erf() const;
    [[noreturn]] void refuse(const std::string& why) const;
};

/// One line of the table: an op and the function that makes its launch.
struct KernelRule {
    std::string_view op;
    Launch (*make)(const Request&);
    bool scratch = false;  ///< the CPU kernel requests scratch from its context, before anything else
};

std::span<const KernelRule> elementwise_rules();
std::span<const KernelRule> contraction_rules();
std::span<const KernelRule> row_rules();
std::span<const KernelRule> index_rules();
std::span<const KernelRule> code_rules();
std::span<const KernelRule> shape_rules();

/// nullptr when there is no such kernel.
const KernelRule* find_rule(std::string_view op);
std::vector<std::string> rule_ops();
/// Throws Refused with the reason when the spec cannot run. Number and types of operands must be those of the op's
/// definition (wrong_operands of orrery/kernel.h).
Launch resolve(const Spec& spec, const Target& target);

// Inputs of attention: q, k, v, and four of an index or none. Of its gradient: q, k, v, o, lse, do, four of an index or
// none, and dlse or nothing.
/// The index of a launch; `first` is its first operand: 3 of attention, 6 of its gradient.
AttentionIndex index_of(const Attention& s, Operands t, size_t first);
/// dlse of a launch of the gradient; absent (data null) when it has none.
In d_lse_of(const Attention& s, Operands t);

inline In in(const Tensor& t) { return {t.data, t.type}; }
inline Out out(const Tensor& t) { return {t.data, t.type}; }
inline i64 rows_of(const Operand& type) { return type.rows(); }
inline i64 cols_of(const Operand& type) { return type.cols(); }

}  // namespace orrery::kernels::rules
