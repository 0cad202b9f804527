// Runs one kernel call by the reference, by every CPU table of this machine and by the CUDA table under the emulator of
// thread blocks, and compares all outputs.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/cuda/emulated/emulated.h"
#include "kernels/kernels.h"

namespace orrery::kernels::testing {

using i64 = std::int64_t;

/// An operand with its own memory. 64 guard bytes behind it notice a kernel that writes too far.
class Buffer {
public:
    Buffer(Type type, i64 n) : type_(type), n_(n), bytes_(static_cast<size_t>(n * size_of(type)) + 64, guard) {}

    In in() const { return {bytes_.data(), type_}; }
    Out out() { return {bytes_.data(), type_}; }
    template <class T>
    T* as() {
        return reinterpret_cast<T*>(bytes_.data());
    }
    i64 count() const { return n_; }
    Type type() const { return type_; }

    std::vector<double> values() const {
        std::vector<double> v(static_cast<size_t>(n_));
        Context c;
        reference::table().cast(c, in(), v.data(), n_);
        return v;
    }
    void set(const std::vector<double>& v) {
        Context c;
        reference::table().cast(c, v.data(), out(), n_);
    }
    bool same_bits(const Buffer& other) const { return bytes_ == other.bytes_; }
    bool guarded() const {
        for (size_t i = bytes_.size() - 64; i < bytes_.size(); ++i) {
            if (bytes_[i] != guard) return false;
        }
        return true;
    }

private:
    static constexpr unsigned char guard = 0xa5;
    Type type_;
    i64 n_;
    std::vector<unsigned char> bytes_;
};

/// Fresh numbers in every run; the seed is printed when a check fails.
class Source {
public:
    Source() : seed(std::random_device{}()), engine_(seed) {}
    Buffer uniform(Type type, i64 n, double low = -1, double high = 1) {
        std::uniform_real_distribution<double> draw(low, high);
        std::vector<double> v(static_cast<size_t>(n));
        for (double& e : v) e = draw(engine_);
        Buffer b(type, n);
        b.set(v);
        return b;
    }
    Buffer integers(i64 n, i64 low, i64 high) {
        std::uniform_int_distribution<i64> draw(low, high);
        std::vector<double> v(static_cast<size_t>(n));
        for (double& e : v) e = static_cast<double>(draw(engine_));
        Buffer b(Type::i32, n);
        b.set(v);
        return b;
    }
    const unsigned seed;

private:
    std::mt19937 engine_;
};

inline const char* name_of(cpu::Isa isa) {
    return isa == cpu::Isa::portable ? "portable" : isa == cpu::Isa::avx2 ? "avx2" : "avx512";
}

/// Relative error of norms that a result of this type may have.
inline double tolerance(Type type) { return type == Type::bf16 ? 1e-2 : type == Type::f16 ? 1e-3 : 1e-5; }

/// `as`: the type whose tolerance the result has.
inline void check_close(const Buffer& got, const Buffer& expected, Type as) {
    const std::vector<double> g = got.values(), e = expected.values();
    double error = 0, norm = 0;
    for (size_t i = 0; i < g.size(); ++i) {
        if (std::isinf(e[i]) || std::isnan(e[i])) {
            if (!(g[i] == e[i] || (std::isnan(g[i]) && std::isnan(e[i])))) FAIL("element " << i << " is " << g[i]);
            continue;
        }
        error += (g[i] - e[i]) * (g[i] - e[i]);
        norm += e[i] * e[i];
    }
    // The terms of a few numbers may all cancel: then their error is that of terms of about one.
    const double least = g.size() <= 8 ? 0.1 : 0;
    CHECK(std::sqrt(error) <= tolerance(as) * std::max(std::sqrt(norm), least));
    CHECK(got.guarded());
}
inline void check_close(const Buffer& got, const Buffer& expected) { check_close(got, expected, got.type()); }

/// `call` runs one kernel of the table that it gets and writes to the buffers that it gets: copies of `outputs`.
using Call = std::function<void(const Kernels&, Context&, std::vector<Buffer>&)>;

/// CUDA kernels in blocks of fibers: no GPU is needed.
inline void compare_emulated(const std::vector<Buffer>& outputs, const std::vector<Buffer>& expected,
                             const Call& call) {
    std::vector<Buffer> got = outputs, again = outputs;
    for (std::vector<Buffer>* y : {&got, &again}) {
        emulated::Call context;
        call(emulated::table(), context, *y);
#ifdef __SANITIZE_ADDRESS__
        again = got;  // it would touch the same once more
        break;
#endif
    }
    for (size_t i = 0; i < got.size(); ++i) {
        INFO("emulated CUDA, output " << i << ", type " << static_cast<int>(got[i].type()));
        check_close(got[i], expected[i]);
        CHECK(got[i].same_bits(again[i]));
    }
}

/// Kinds of products, with which a kernel that has one is compared. Where oneDNN has no 16-bit product, native widens.
using Kinds = std::vector<Products>;
#ifdef __SANITIZE_ADDRESS__
inline const Kinds every_kind{Products::onednn};  // kernels_guarded.cpp has all of them there; here they take minutes
#else
inline const Kinds every_kind(std::begin(all_products), std::end(all_products));
#endif

/// Runs on every table but the reference: the CPU's with some numbers of threads, and CUDA's emulated on GPUs of some
/// sizes.
inline void each_table(const std::function<void(const Kernels&, Context&)>& run) {
    for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
        if (!cpu::available(isa)) continue;
        for (const int threads : {1, 2, 7}) {
            INFO("isa " << name_of(isa) << ", threads " << threads);
            Context context(threads);
            run(cpu::table(isa), context);
        }
    }
    for (const int multiprocessors : {1, 2, 132}) {
        INFO("emulated CUDA, " << multiprocessors << " multiprocessors");
        emulated::Call call(nullptr, nullptr, multiprocessors);
        run(emulated::table(), call);
    }
}

inline void compare_with_reference(const Source& source, const std::vector<Buffer>& outputs, const Call& call,
                                   const Kinds& kinds = {Products::onednn}) {
    std::vector<Buffer> expected = outputs;
    Context one;
    call(reference::table(), one, expected);
    {
        INFO("seed " << source.seed);
        compare_emulated(outputs, expected, call);
    }
    for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
        if (!cpu::available(isa)) continue;
#ifdef __SANITIZE_ADDRESS__
        if (isa != cpu::Isa::portable) continue;  // those run in kernels_guarded.cpp; here they take a minute more
#endif
        for (const Products products : kinds) {
            for (const int threads : {1, 3}) {
                INFO("isa " << name_of(isa) << ", products " << static_cast<int>(products) << ", threads " << threads
                            << ", seed " << source.seed);
                Context context(threads);
                context.use(products);
                std::vector<Buffer> got = outputs;
                call(cpu::table(isa), context, got);
                for (size_t i = 0; i < got.size(); ++i) {
                    INFO("output " << i << ", type " << static_cast<int>(got[i].type()));
                    check_close(got[i], expected[i]);
                }
            }
        }
    }
}

}  // namespace orrery::kernels::testing
