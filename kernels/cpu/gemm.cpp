#include "kernels/cpu/gemm.h"

#include <omp.h>
#include <dnnl.hpp>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace orrery::kernels::cpu {

namespace {

// Inside a team oneDNN uses its thread only; outside it would start threads of its own.
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

struct ProductShape {
    memory::data_type type;  ///< type of a and b; bias and c are f32
    bool trans_a, trans_b, bias, add;
    std::int64_t m, n, k, lda, ldb, ldc;
    auto operator<=>(const ProductShape&) const = default;
};

/// oneDNN's product for one shape. Making it again for each launch takes some microseconds, even when oneDNN has cached
/// it, and allocates.
class Product {
public:
    explicit Product(const ProductShape& s) : stream_(engine()) {
        const memory::desc a = matrix(s.type, s.trans_a, s.m, s.k, s.lda),
                           b = matrix(s.type, s.trans_b, s.k, s.n, s.ldb),
                           c = matrix(memory::data_type::f32, false, s.m, s.n, s.ldc),
                           bias({1, s.n}, memory::data_type::f32, memory::dims{s.n, 1});
        dnnl::primitive_attr attributes;
        // Otherwise oneDNN's scratch belongs to the creating thread, and another thread would write to memory it does
        // not have.
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (s.add) {
            dnnl::post_ops then;
            then.append_sum(1);
            attributes.set_post_ops(then);
        }
        const auto desc = s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
        const dnnl::matmul::primitive_desc made(desc, attributes, engine());
        product_ = dnnl::matmul(made);
        take(DNNL_ARG_SRC, a);
        take(DNNL_ARG_WEIGHTS, b);
        take(DNNL_ARG_DST, c);
        if (s.bias) take(DNNL_ARG_BIAS, bias);
        memory_.emplace_back(made.scratchpad_desc(), engine());
        args_.push_back({DNNL_ARG_SCRATCHPAD, memory_.back().get()});
    }

    void run(const void* a, const void* b, void* c, const float* bias = nullptr) {
        memory_[0].set_data_handle(const_cast<void*>(a));
        memory_[1].set_data_handle(const_cast<void*>(b));
        memory_[2].set_data_handle(c);
        if (bias) memory_[3].set_data_handle(const_cast<float*>(bias));
        dnnl::error::wrap_c_api(
            dnnl_primitive_execute(product_.get(), stream_.get(), static_cast<int>(args_.size()), args_.data()),
            "oneDNN's product failed");
        stream_.wait();
    }

private:
    void take(int place, const memory::desc& desc) {
        memory_.emplace_back(desc, engine(), nullptr);
        args_.push_back({place, memory_.back().get()});
    }

    dnnl::stream stream_;
    dnnl::matmul product_;
    std::vector<memory> memory_;
    std::vector<dnnl_exec_arg_t> args_;
};

/// One thread's products, by shape.
using Ready = std::map<ProductShape, Product>;

/// A thread that ends leaves its products to one that starts. None is destroyed, because threads may end after oneDNN's
/// own objects.
class LeftBehind {
public:
    static LeftBehind& all() {
        static auto& left = *new LeftBehind;
        return left;
    }
    Ready* take() {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return made_.emplace_back(std::make_unique<Ready>()).get();
        Ready* const taken = free_.back();
        free_.pop_back();
        return taken;
    }
    void leave(Ready* ready) {
        const std::lock_guard lock(mutex_);
        free_.push_back(ready);
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Ready>> made_;
    std::vector<Ready*> free_;
};

struct Mine {
    Ready* const ready = LeftBehind::all().take();
    Mine() = default;
    Mine(const Mine&) = delete;
    ~Mine() { LeftBehind::all().leave(ready); }
};

void run_product(const ProductShape& shape, const void* a, const void* b, void* c, const float* bias = nullptr) {
    thread_local const Mine mine;
    mine.ready->try_emplace(shape, shape).first->second.run(a, b, c, bias);
}

bool makes_native(memory::data_type type) {
    constexpr std::int64_t n = 64;
    try {
        for (const bool add : {false, true}) Product({type, false, true, false, add, n, n, n, n, n, n});
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

std::string onednn_instructions() { return std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa())); }

std::string why_not(Products products) {
    if (products != Products::native || has_native(Type::bf16) || has_native(Type::f16)) return "";
    return "oneDNN " + onednn_version() + " has no 16-bit product on this processor";
}

void gemm_native(Type type, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                 std::int64_t lda, const void* b, std::int64_t ldb, bool add, float* c, std::int64_t ldc) {
    if (m == 0 || n == 0 || (k == 0 && add)) return;
    if (k == 0) return gemm(false, false, m, n, 0, 1, nullptr, 1, nullptr, 1, 0, c, ldc);
    stay_on_this_thread();
    run_product({name_of(type), trans_a, trans_b, false, add, m, n, k, lda, ldb, ldc}, a, b, c);
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
    run_product({memory::data_type::f32, trans_a, trans_b, true, false, m, n, k, lda, ldb, ldc}, a, b, c, bias);
}

}  // namespace orrery::kernels::cpu
