#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/plan.h"
#include "run/calibrate/kernel_bench.h"

namespace orrery {

/// The distinct kernels of plans, in the order of their rank classes (ranks with the same instructions), each with the
/// operands that share memory in its first launch and the attributes of the first rank that runs it.
std::vector<KernelCase> kernel_cases(const std::vector<const Plan*>& plans);

/// A list of distinct kernels to time. Specs are made through the op definitions, so that attributes and results are
/// complete; outputs are in place if the op allows it.
class KernelCases {
public:
    /// `device`: kernels that it does not support are left out; nullptr: none is left out.
    explicit KernelCases(Device* device = nullptr) : device_(device) {}
    std::vector<KernelCase> take() { return std::move(cases_); }
    void suffix(std::string text) { suffix_ = std::move(text); }

    /// Adds a case that runs an op. `name`: the case's name; "": the op's name.
    void add(std::string_view op, const std::vector<TensorType>& inputs, const Attributes& attributes = {},
             const std::string& name = "");
    /// Adds every op that maps one or several tensors of x's type to results of the same type.
    void add_alike(const TensorType& x);

    /// The functions below add kernels of a transformer's training step.
    void products(DType f, int64_t m, int64_t n, int64_t k, const std::string& name = "matmul", bool bias = false);
    /// Adds causal attention: q [batch, time, heads, head size], k and v with `groups` heads.
    void attentions(DType f, const Shape& q, int64_t groups);
    void norms(const TensorType& x);                   ///< adds norms of x [rows, width], and its sum over rows
    void losses(const TensorType& logits);             ///< adds losses of logits [tokens, vocab]
    void lookups(const TensorType& x, int64_t vocab);  ///< adds lookups that give x [tokens, width]
    void heads(const TensorType& x);                   ///< adds rope and transpose of x [batch, time, heads, head size]
    void updates(DType f, int64_t n);                  ///< adds AdamW of n params, casts to and from f, and a norm

private:
    Device* const device_;
    std::string suffix_;
    std::set<std::string> seen_;
    std::vector<KernelCase> cases_;
};

/// A grid of transformer kernels: matrix products over m, n, k in each form of a training step, attention over sequence
/// lengths and heads, norms, losses over vocabularies, elementwise ops, updates and casts. Contains the kernels that
/// the device has, in `dtype`, and also in f32 where a training step uses f32; small ones first.
std::vector<KernelCase> kernel_grid(Device& device, DType dtype);

}  // namespace orrery
