#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <dnnl.hpp>

#include <stdexcept>
#include <string>

namespace orrery::kernels::cpu {

namespace {

// Inside a team oneDNN stays on its thread; outside it would start threads of its own.
void stay_on_this_thread() {
    if (!omp_in_parallel() && omp_get_max_threads() != 1) omp_set_num_threads(1);
}

}  // namespace

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        }
        return;
    }
    stay_on_this_thread();
    const dnnl_status_t status =
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        throw std::runtime_error("oneDNN's sgemm failed with status " + std::to_string(static_cast<int>(status)) +
                                 (status == dnnl_out_of_memory ? ": out of memory" : ""));
}

void gemm_bias(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
               std::int64_t lda, const float* b, std::int64_t ldb, const float* bias, float* c, std::int64_t ldc) {
    using dnnl::memory;
    if (m == 0 || n == 0) return;
    stay_on_this_thread();
    // oneDNN keeps primitives by shape itself; finding one again takes some microseconds.
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    constexpr auto f32 = memory::data_type::f32;
    const memory::desc a_desc({m, k}, f32, trans_a ? memory::dims{1, lda} : memory::dims{lda, 1});
    const memory::desc b_desc({k, n}, f32, trans_b ? memory::dims{1, ldb} : memory::dims{ldb, 1});
    const memory::desc bias_desc({1, n}, f32, memory::dims{n, 1}), c_desc({m, n}, f32, memory::dims{ldc, 1});
    const dnnl::matmul product(dnnl::matmul::primitive_desc({a_desc, b_desc, bias_desc, c_desc}, engine));
    dnnl::stream stream(engine);
    product.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, engine, const_cast<float*>(a))},
                             {DNNL_ARG_WEIGHTS, memory(b_desc, engine, const_cast<float*>(b))},
                             {DNNL_ARG_BIAS, memory(bias_desc, engine, const_cast<float*>(bias))},
                             {DNNL_ARG_DST, memory(c_desc, engine, c)}});
    stream.wait();
}

}  // namespace orrery::kernels::cpu
