#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/plan.h"
#include "run/calibrate/kernel_bench.h"

namespace orrery {

/// The distinct kernels of a plan in the order of classes and their lists, each with the operands that share memory in
/// its first launch and the attributes of the first rank that runs it.
std::vector<KernelCase> kernel_cases(const Plan& plan);

/// A list of kernels to be timed, as scripts make them: attributes and results are complete, and outputs lie in place
/// where the op allows it. Each spec once.
class KernelCases {
public:
    /// Leaves out what the device cannot run; nullptr: nothing.
    explicit KernelCases(Device* device = nullptr) : device_(device) {}
    std::vector<KernelCase> take() { return std::move(cases_); }
    /// Behind the names of what is added from now on.
    void suffix(std::string text) { suffix_ = std::move(text); }

    /// `name`: of the case; "": the op's.
    void add(std::string_view op, const std::vector<TensorType>& inputs, const Attributes& attributes = {},
             const std::string& name = "");
    /// Every op that makes of `x`, or of some of them, others like it: element by element, or row by row.
    void add_alike(const TensorType& x);

    // What a step of a transformer has.
    /// y = x w of [m,k] and [k,n], with `bias` + b; dx = dy w'; dw = x' dy.
    void products(DType f, int64_t m, int64_t n, int64_t k, const std::string& name = "matmul", bool bias = false);
    /// Causal, q [batch, time, heads, size of a head], k and v with `groups` heads.
    void attentions(DType f, const Shape& q, int64_t groups);
    void norms(const TensorType& x);                   ///< [rows, width], and the sum of these rows
    void losses(const TensorType& logits);             ///< [tokens, vocab]
    void lookups(const TensorType& x, int64_t vocab);  ///< x [tokens, width]
    void heads(const TensorType& x);                   ///< [batch, time, heads, size of a head]
    void updates(DType f, int64_t n);                  ///< AdamW of n params, their casts to and from f, a norm

private:
    Device* const device_;
    std::string suffix_;
    std::set<std::string> seen_;
    std::vector<KernelCase> cases_;
};

/// Kernels of transformers of any size: products over m, n, k in each form of a training step, attention over sequences
/// and heads, norms, losses over vocabularies, element by element, updates and casts over bytes; those that the device
/// has, in `dtype` and, where a step has it so, in f32. Small ones first.
std::vector<KernelCase> kernel_grid(Device& device, DType dtype);

}  // namespace orrery
