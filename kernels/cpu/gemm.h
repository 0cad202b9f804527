// Matrix products on the calling thread.
#pragma once

#include <cstdint>

namespace orrery::kernels::cpu {

/// c [m,n] = beta c + alpha op(a) op(b), row-major with leading dims; k = 0 scales c. By oneDNN.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

/// c [m,n] = op(a) op(b) + bias [n].
void gemm_bias(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
               std::int64_t lda, const float* b, std::int64_t ldb, const float* bias, float* c, std::int64_t ldc);

}  // namespace orrery::kernels::cpu
