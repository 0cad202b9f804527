#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <dnnl.hpp>

#include <compare>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace orrery::kernels::cpu {

namespace {

// Inside a team oneDNN stays on its thread; outside it would start threads of its own.
void stay_on_this_thread() {
    if (!omp_in_parallel() && omp_get_max_threads() != 1) omp_set_num_threads(1);
}

struct BiasShape {
    bool trans_a, trans_b;
    std::int64_t m, n, k, lda, ldb, ldc;
    auto operator<=>(const BiasShape&) const = default;
};

/// oneDNN's product with a bias, ready for one shape. Making it anew for each launch takes some microseconds, also
/// where oneDNN still has it, and allocates.
class BiasProduct {
public:
    BiasProduct(const dnnl::engine& engine, const BiasShape& s) : stream_(engine) {
        using dnnl::memory;
        constexpr auto f32 = memory::data_type::f32;
        const memory::desc a({s.m, s.k}, f32, s.trans_a ? memory::dims{1, s.lda} : memory::dims{s.lda, 1});
        const memory::desc b({s.k, s.n}, f32, s.trans_b ? memory::dims{1, s.ldb} : memory::dims{s.ldb, 1});
        const memory::desc bias({1, s.n}, f32, memory::dims{s.n, 1}), c({s.m, s.n}, f32, memory::dims{s.ldc, 1});
        product_ = dnnl::matmul(dnnl::matmul::primitive_desc({a, b, bias, c}, engine));
        for (const auto& [place, desc] : {std::pair{DNNL_ARG_SRC, &a}, std::pair{DNNL_ARG_WEIGHTS, &b},
                                          std::pair{DNNL_ARG_BIAS, &bias}, std::pair{DNNL_ARG_DST, &c}}) {
            memory_.emplace_back(*desc, engine, nullptr);
            args_.push_back({place, memory_.back().get()});
        }
    }

    void run(const float* a, const float* b, const float* bias, float* c) {
        memory_[0].set_data_handle(const_cast<float*>(a));
        memory_[1].set_data_handle(const_cast<float*>(b));
        memory_[2].set_data_handle(const_cast<float*>(bias));
        memory_[3].set_data_handle(c);
        dnnl::error::wrap_c_api(
            dnnl_primitive_execute(product_.get(), stream_.get(), static_cast<int>(args_.size()), args_.data()),
            "oneDNN's product with a bias failed");
        stream_.wait();
    }

private:
    dnnl::stream stream_;
    dnnl::matmul product_;
    std::vector<dnnl::memory> memory_;
    std::vector<dnnl_exec_arg_t> args_;
};

/// Of the calling thread.
BiasProduct& product_of(const BiasShape& shape) {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    thread_local std::map<BiasShape, BiasProduct> known;
    const auto found = known.find(shape);
    return found != known.end() ? found->second : known.try_emplace(shape, engine, shape).first->second;
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
    if (m == 0 || n == 0) return;
    stay_on_this_thread();
    product_of({trans_a, trans_b, m, n, k, lda, ldb, ldc}).run(a, b, bias, c);
}

}  // namespace orrery::kernels::cpu
