// Matrix products on the calling thread.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace orrery::kernels::cpu {

/// c [m,n] = beta c + alpha op(a) op(b), row-major with leading dims; k = 0 scales c. By oneDNN.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

/// c [m,n] = op(a) op(b) + bias [n].
void gemm_bias(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
               std::int64_t lda, const float* b, std::int64_t ldb, const float* bias, float* c, std::int64_t ldc);

/// Whether oneDNN has a product of operands of this 16-bit type on this processor. Checked once.
bool has_native(Type type);

/// c [m,n] (+)= op(a) op(b), for two operands of one type for which has_native() holds.
void gemm_native(Type type, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                 std::int64_t lda, const void* b, std::int64_t ldb, bool add, float* c, std::int64_t ldc);

}  // namespace orrery::kernels::cpu
