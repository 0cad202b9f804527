// Matrix products by cuBLASLt, with what is fused behind them.
#pragma once

#include <memory>

#include "kernels/cuda/call.h"
#include "kernels/rules/epilogue.h"

namespace orrery::kernels::cuda {

using rules::Epilogue;

class BlasPlan;

/// One product of fixed sizes. The rehearsal times cuBLASLt's algorithms for it, or reads the fastest one from the
/// cache; what cuBLASLt does not offer is made of it by conversions, which are part of the scratch.
class BlasProduct {
public:
    BlasProduct(const Matmul& sizes, Epilogue epilogue, bool bias, bool keeps_pre);
    ~BlasProduct();
    /// bias: where there is one. pre: a b + bias, for a gelu that keeps it.
    void operator()(Call& call, In a, In b, In bias, Out y, Out pre);

private:
    In converted(Call& call, In x, i64 n, Type type) const;
    /// Operands of one type, y of the same or f32, the bias of y's. adds: into y, where sizes say so.
    void direct(Call& call, In a, In b, In bias, Out y, Out pre, bool gelu, bool adds);

    Matmul sizes_;
    Epilogue epilogue_;
    bool bias_, keeps_pre_;
    std::shared_ptr<BlasPlan> plan_;  ///< of all products like this one in the context
};

}  // namespace orrery::kernels::cuda
