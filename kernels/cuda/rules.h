// From a spec to the call of a kernel, for the CUDA table. The lines agree with those of plugins/device/cpu.
#pragma once

#include <functional>
#include <span>

#include "kernels/cuda/call.h"
#include "kernels/cuda/kernels.h"

namespace orrery::kernels::cuda {

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

/// The kernels of this folder; products and attention without the vendor's libraries.
const Kernels& table();

inline In in(const Tensor& t) { return {t.data, t.type}; }
inline Out out(const Tensor& t) { return {t.data, t.type}; }
inline i64 rows_of(const Operand& type) { return type.rows(); }
inline i64 cols_of(const Operand& type) { return type.cols(); }

/// Dense copy of bytes within the device.
void copy_dense(Call& call, const void* from, void* to, i64 n);

}  // namespace orrery::kernels::cuda
