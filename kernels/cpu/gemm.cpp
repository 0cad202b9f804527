#include "kernels/cpu/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include <cassert>

namespace orrery::kernels::cpu {

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        }
        return;
    }
    // Inside a team oneDNN stays on its thread; outside it would start threads of its own.
    if (!omp_in_parallel() && omp_get_max_threads() != 1) omp_set_num_threads(1);
    [[maybe_unused]] const dnnl_status_t status =
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    assert(status == dnnl_success);
}

}  // namespace orrery::kernels::cpu
