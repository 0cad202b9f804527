// Matrix products by cuBLASLt, with fused epilogues.
#pragma once

#include <memory>

#include "kernels/cuda/call.h"
#include "kernels/rules/epilogue.h"

namespace orrery::kernels::cuda {

using rules::Epilogue;

class BlasPlan;

/// One product of fixed sizes. The rehearsal times cuBLASLt's algorithms for it, or reads the fastest one from the
/// cache. What cuBLASLt does not offer is built from it with conversions in scratch.
class BlasProduct {
public:
    BlasProduct(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre);
    ~BlasProduct();
    /// bias: may be absent. pre: a b + bias, for a gelu that stores it.
    void operator()(Call& call, In a, In b, In bias, Out y, Out pre);

private:
    In converted(Call& call, In x, i64 n, Type type) const;
    /// Operands of one type, y of the same or f32, the bias of y's type. adds: accumulates to y if the sizes say so.
    void direct(Call& call, In a, In b, In bias, Out y, Out pre, bool gelu, bool adds);

    Matmul sizes_;
    Epilogue epilogue_;
    bool bias_, keeps_pre_;
    std::shared_ptr<BlasPlan> plan_;  ///< shared by all products of this kind in the context
};

}  // namespace orrery::kernels::cuda
