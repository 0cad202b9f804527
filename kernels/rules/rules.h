// From a spec to a call of kernels: what an op's shapes and attributes must be, and which kernel they mean. Devices
// add what differs between them, and have checked number and types of operands: the op's definition says them.
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
    bool norms_of_one_type = false;  ///< x, y and their gradients
    i64 most_head_dim = 0;           ///< 0: any
    void (*copy)(Context&, const void* from, void* to, i64 bytes) = nullptr;
    Launch (*product)(const Kernels&, const Matmul&, Epilogue, bool bias, bool keeps_pre) = nullptr;
    Launch (*bias_grad)(const Kernels&, const Matmul&) = nullptr;
    // nullptr: the kernel of the table.
    Launch (*gelu_grad)(const Matmul&, UnaryGrad) = nullptr;
    Launch (*attention)(const Attention&, Type, bool gradient) = nullptr;
};

/// What a maker sees.
struct Request {
    const Spec& spec;
    const Target& target;

    // There are as many as the op's definition says: see resolve().
    const Operand& input(size_t i) const {
        assert(i < spec.inputs.size());
        return spec.inputs[i];
    }
    const Operand& output(size_t i) const {
        assert(i < spec.outputs.size());
        return spec.outputs[i];
    }
    /// Place of the first output among the operands.
    size_t out() const { return spec.inputs.size(); }
    bool accumulate() const { return spec.flag("accumulate"); }
    bool has(std::string_view attribute) const;
    /// A number that the op's definition always writes out; refuses where it is absent.
    double given(std::string_view attribute) const;
    /// Offset of this rank's shard along a dim of the operand that matters; 0 when unsharded.
    i64 offset(size_t dim) const;
    /// The attribute `dim`, of an operand of this rank, counted from 0; refuses one that it lacks.
    size_t dim(size_t rank) const;
    /// Whether the gelu is the erf form, not the tanh one; refuses any other word.
    bool erf() const;
    [[noreturn]] void refuse(const std::string& why) const;
};

/// One line of the table: an op and who makes the call.
struct KernelRule {
    std::string_view op;
    Launch (*make)(const Request&);
    bool scratch = false;  ///< a kernel of the CPU asks its context for scratch, before anything else
};

std::span<const KernelRule> elementwise_rules();
std::span<const KernelRule> contraction_rules();
std::span<const KernelRule> row_rules();
std::span<const KernelRule> index_rules();
std::span<const KernelRule> shape_rules();

/// nullptr: no such kernel.
const KernelRule* find_rule(std::string_view op);
/// All ops with a kernel.
std::vector<std::string> rule_ops();
/// Throws Refused with the reason when the spec cannot run. Its operands are as many and of such types as the op's
/// definition says (wrong_operands of orrery/kernel.h).
Launch resolve(const Spec& spec, const Target& target);

inline In in(const Tensor& t) { return {t.data, t.type}; }
inline Out out(const Tensor& t) { return {t.data, t.type}; }
inline i64 rows_of(const Operand& type) { return type.rows(); }
inline i64 cols_of(const Operand& type) { return type.cols(); }

}  // namespace orrery::kernels::rules
