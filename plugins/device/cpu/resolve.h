// From an op of the table in core/ir/README.md to a call of one kernel.
#pragma once

#include <functional>
#include <string>

#include "kernels/kernels.h"
#include "orrery/device.h"

namespace orrery::cpu_device {

using Launch = std::function<void(kernels::Context&, std::span<const Tensor>)>;

/// What a maker sees: the spec, with helpers that fit the kernels' way of naming things.
struct Request {
    const KernelSpec& spec;
    const kernels::Kernels& kernels;

    const TensorType& input(size_t i) const { return spec.inputs[i]; }
    const TensorType& output(size_t i) const { return spec.outputs[i]; }
    /// Place of the first output among the operands.
    size_t out() const { return spec.inputs.size(); }
    bool accumulate() const { return spec.attributes.flag("accumulate"); }
    /// Offset of this rank's shard along a dim of the operand that matters; 0 when unsharded.
    int64_t offset(size_t dim) const;
    /// Whether the gelu is the erf form, not the tanh one; refuses any other word.
    bool erf() const;
    [[noreturn]] void refuse(const std::string& why) const;
};

/// One line of the table: an op, its operands and who makes the call.
/// f: float, all f's of one type; F: float of any type; s: statistic, f32 (f64 beside f64); i: i32; u: u32; b: u8;
/// n: i32, or the type of an f; *: anything; ?: may be absent; ...: any number of the one before.
struct Rule {
    const char* op;
    const char* operands;
    Launch (*make)(const Request&);
    bool accumulates = false;
    bool scratch = false;  ///< its kernel asks the context for scratch, before anything else
};

std::span<const Rule> elementwise_rules();
std::span<const Rule> contraction_rules();
std::span<const Rule> row_rules();
std::span<const Rule> shape_rules();

/// Bytes of scratch that a launch of this spec takes from a context of so many threads.
int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads);

/// Throws Error with the reason when the spec cannot run here.
Launch resolve(const KernelSpec& spec, const kernels::Kernels& kernels, bool reference);

kernels::Type type_of(DType type);
inline kernels::In in(const Tensor& t) { return {t.data, type_of(t.dtype)}; }
inline kernels::Out out(const Tensor& t) { return {t.data, type_of(t.dtype)}; }
/// Product of all sizes but the last, and the last one.
int64_t rows_of(const TensorType& type);
int64_t cols_of(const TensorType& type);

}  // namespace orrery::cpu_device
