#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <dnnl.hpp>

#include <stdexcept>
#include <string>

#include "kernels/kernels.h"

namespace orrery::kernels::cpu {

namespace {

// Inside a team oneDNN stays on its thread; outside it would start threads of its own.
void stay_on_this_thread() {
    if (!omp_in_parallel() && omp_get_max_threads() != 1) omp_set_num_threads(1);
}

using dnnl::memory;

const dnnl::engine& engine() {
    static const dnnl::engine made(dnnl::engine::kind::cpu, 0);
    return made;
}

memory::desc matrix(memory::data_type type, bool transposed, std::int64_t rows, std::int64_t cols,
                    std::int64_t stride) {
    return memory::desc({rows, cols}, type, transposed ? memory::dims{1, stride} : memory::dims{stride, 1});
}

memory::data_type name_of(Type type) {
    return type == Type::bf16  ? memory::data_type::bf16
           : type == Type::f16 ? memory::data_type::f16
                               : memory::data_type::f32;
}

dnnl::matmul::primitive_desc native_product(const memory::desc& a, const memory::desc& b, const memory::desc& c,
                                            bool add) {
    dnnl::primitive_attr attributes;
    if (add) {
        dnnl::post_ops then;
        then.append_sum(1);
        attributes.set_post_ops(then);
    }
    return {dnnl::matmul::desc(a, b, c), attributes, engine()};
}

bool makes_native(memory::data_type type) {
    constexpr std::int64_t n = 64;
    try {
        for (const bool add : {false, true})
            native_product(matrix(type, false, n, n, n), matrix(type, true, n, n, n),
                           matrix(memory::data_type::f32, false, n, n, n), add);
        return true;
    } catch (const dnnl::error&) {  // unimplemented
        return false;
    }
}

}  // namespace

bool has_native(Type type) {
    static const bool bf16 = makes_native(memory::data_type::bf16), f16 = makes_native(memory::data_type::f16);
    return type == Type::bf16 ? bf16 : type == Type::f16 && f16;
}

std::string onednn_version() {
    const dnnl_version_t* version = dnnl_version();
    return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

std::string why_not(Products products) {
    if (products != Products::native || has_native(Type::bf16) || has_native(Type::f16)) return "";
    return "oneDNN " + onednn_version() + " has no 16-bit product on this processor";
}

void gemm_native(Type type, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                 std::int64_t lda, const void* b, std::int64_t ldb, bool add, float* c, std::int64_t ldc) {
    if (m == 0 || n == 0 || (k == 0 && add)) return;
    if (k == 0) return gemm(false, false, m, n, 0, 1, nullptr, 1, nullptr, 1, 0, c, ldc);
    stay_on_this_thread();
    const memory::desc a_desc = matrix(name_of(type), trans_a, m, k, lda),
                       b_desc = matrix(name_of(type), trans_b, k, n, ldb),
                       c_desc = matrix(memory::data_type::f32, false, m, n, ldc);
    const dnnl::matmul product(native_product(a_desc, b_desc, c_desc, add));
    dnnl::stream stream(engine());
    product.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, engine(), const_cast<void*>(a))},
                             {DNNL_ARG_WEIGHTS, memory(b_desc, engine(), const_cast<void*>(b))},
                             {DNNL_ARG_DST, memory(c_desc, engine(), c)}});
    stream.wait();
}

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
    if (m == 0 || n == 0) return;
    stay_on_this_thread();
    // oneDNN keeps primitives by shape itself; finding one again takes some microseconds.
    constexpr auto f32 = memory::data_type::f32;
    const memory::desc a_desc = matrix(f32, trans_a, m, k, lda), b_desc = matrix(f32, trans_b, k, n, ldb),
                       bias_desc({1, n}, f32, memory::dims{n, 1}), c_desc = matrix(f32, false, m, n, ldc);
    const dnnl::matmul product(dnnl::matmul::primitive_desc({a_desc, b_desc, bias_desc, c_desc}, engine()));
    dnnl::stream stream(engine());
    product.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, engine(), const_cast<float*>(a))},
                             {DNNL_ARG_WEIGHTS, memory(b_desc, engine(), const_cast<float*>(b))},
                             {DNNL_ARG_BIAS, memory(bias_desc, engine(), const_cast<float*>(bias))},
                             {DNNL_ARG_DST, memory(c_desc, engine(), c)}});
    stream.wait();
}

}  // namespace orrery::kernels::cpu
