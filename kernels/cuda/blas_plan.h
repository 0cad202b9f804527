// A request to cuBLASLt: one product of fixed sizes and types, and the algorithms chosen for it.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/call.h"
#include "kernels/cuda/context.h"

namespace orrery::kernels::cuda {

/// Deleter of a library's objects, for std::unique_ptr.
template <auto destroy>
struct GiveBack {
    template <class T>
    void operator()(T* made) const {
        destroy(made);
    }
};
using BlasProductDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, GiveBack<cublasLtMatmulDescDestroy>>;
using BlasLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, GiveBack<cublasLtMatrixLayoutDestroy>>;

/// cuBLASLt's epilogue of the product, with the tanh form of gelu:
///   gelu       y = gelu(ab + bias)
///   gelu_aux   the same, and pre = ab + bias
///   gelu_grad  y = gelu'(pre) ab
///   bias_grad  bias = b summed over the inner dim; b is not transposed
enum class BlasThen { nothing, gelu, gelu_aux, gelu_grad, bias_grad };

/// y[b] = op(a[b]) op(b[b]) + bias, y, pre and the bias of type `y`, a and b of type `in`.
struct BlasRequest {
    Matmul sizes;
    Type in = Type::f32, y = Type::f32;
    bool bias = false;  ///< a bias is added
    BlasThen then = BlasThen::nothing;
    bool tf32 = false;

    bool aux() const { return then == BlasThen::gelu_aux || then == BlasThen::gelu_grad; }
    bool bias_pointer() const { return bias || then == BlasThen::bias_grad; }
    /// The key in the cache, e.g. "1x512x768x768 bf16 bf16 tn bias".
    std::string key() const;
};

/// Addresses of one run.
struct BlasOperands {
    const void *a, *b, *bias;  ///< bias is written when it is a gradient
    void* y;
    const void* pre;       ///< written by gelu_aux
    bool aligned() const;  ///< all to 16 bytes
};

struct BlasChoice {
    cublasLtMatmulAlgo_t algorithm{};
    i64 workspace = 0;
};

/// Descriptors and algorithms. Row-major products are column-major products of the swapped operands.
class BlasPlan {
public:
    BlasPlan(Context& context, const BlasRequest& request);
    /// The plan that all products of this kind share in the context.
    static std::shared_ptr<BlasPlan> shared(Context& context, const BlasRequest& request);

    i64 workspace() const;
    /// Whether cuBLASLt has an algorithm for operands at these addresses.
    bool can(const BlasOperands& operands) const { return operands.aligned() ? has_aligned_ : has_any_; }
    bool can_aligned() const { return has_aligned_; }
    void run(Context& context, const BlasOperands& operands, void* workspace);
    /// The kernel that runs, and why: "cuBLASLt, fastest of 8; ours where ...".
    std::string how() const;

private:
    /// Algorithms for operands aligned to 16 bytes, or only to their elements. None when cuBLASLt reports an error,
    /// whose name `said` then is.
    std::vector<BlasChoice> candidates(Context& context, bool aligned, int most, std::string& said) const;
    /// Sets placeholder addresses for queries about algorithms; each run sets the real ones.
    void place(bool aligned) const;
    /// Checks an algorithm from the cache, and updates its workspace size.
    bool usable(Context& context, BlasChoice& choice) const;
    void choose_aligned(Context& context);
    /// The fastest by timing on scratch operands; none when there is no memory for them, or when no candidate runs.
    std::optional<BlasChoice> fastest(Context& context, const std::vector<BlasChoice>& candidates);
    cublasStatus_t run_with(Context& context, const BlasChoice& choice, const BlasOperands& operands, void* workspace);
    float seconds(Context& context, const BlasChoice& choice, const BlasOperands& operands, void* workspace);

    BlasRequest request_;
    BlasProductDesc product_;
    BlasLayout left_, right_, result_;
    BlasChoice aligned_, any_;  ///< any_: operands at any multiple of their element size
    bool has_aligned_ = false, has_any_ = false;
    std::string chosen_, why_not_aligned_, why_not_any_;
};

/// Reduction schemes that candidates may have: partial sums stay in f32. In-place reduction adds in the order in which
/// blocks end and in the result's type, so it is only for f32 results that need not be deterministic.
unsigned blas_reductions(Type result, bool deterministic);

/// A placeholder address with the alignment that operands are guaranteed to have; heuristics check it.
std::uintptr_t blas_placeholder(Type type, bool aligned);

/// Caches choices for the process, so that all its devices agree, and in a file: one line a product. Unreadable lines
/// are skipped.
class BlasCache {
public:
    explicit BlasCache(const Context& context);
    bool find(const std::string& key, BlasChoice& choice) const;
    /// Returns the choice that counts: the first one that any device or process has added. A choice that was not
    /// measured counts in this process only, because readers of the file would take it for the fastest.
    BlasChoice add(const std::string& key, const BlasChoice& choice, bool measured) const;

private:
    bool read(const std::string& key, BlasChoice& choice) const;
    void write(const std::string& key, const BlasChoice& choice) const;

    /// prefix: chip and version, because algorithms are valid for one chip and version only
    std::string file_, prefix_;
};

}  // namespace orrery::kernels::cuda
