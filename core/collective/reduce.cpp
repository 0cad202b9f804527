#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "orrery/half.h"
#include "orrery/p2p.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define ORRERY_AVX2 [[gnu::target("avx2,f16c"), gnu::always_inline]] static inline
#endif

namespace orrery {
namespace {

// Types that load and store elements of a DType and define the type in which they are reduced. They also reduce the
// elements left over that do not fill a vector.

template <class T, class Sum = T>
struct Plain {
    using Element = T;
    static Sum load(T x) { return static_cast<Sum>(x); }
    static T store(Sum x) { return static_cast<T>(x); }
};
struct Bf16 {
    using Element = uint16_t;
    static float load(uint16_t x) { return widen_bf16(x); }
    static uint16_t store(float x) {
        const auto bits = std::bit_cast<uint32_t>(x);
        if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40);
        return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
};
struct F16 {
    using Element = uint16_t;
    static float load(uint16_t x) { return widen_f16(x); }
    static uint16_t store(float x) {
        const auto bits = std::bit_cast<uint32_t>(x);
        const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
        const uint32_t body = bits & 0x7fffffff;
        if (body > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((body >> 13) & 0x3ff));
        if (body >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
        if (body < 0x38800000) {  // subnormal or zero f16: adding 0.5 puts the rounded mantissa into the low bits
            const float rounded = std::bit_cast<float>(body) + 0.5f;
            return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
        }
        return static_cast<uint16_t>(sign | ((body - 0x38000000 + 0xfff + ((body >> 13) & 1)) >> 13));
    }
};

struct Sum {
    template <class T>
    static T apply(T a, T b) {
        return a + b;
    }
};
struct Max {
    template <class T>
    static T apply(T a, T b) {
        return a != a ? a : a > b ? a : b;
    }
};
struct Min {
    template <class T>
    static T apply(T a, T b) {
        return a != a ? a : a < b ? a : b;
    }
};

using Ins = std::span<const void* const>;
using Outs = std::span<void* const>;

template <class Type, class Op>
void reduce_scalar(Ins ins, Outs outs, int64_t begin, int64_t end) {
    using Element = typename Type::Element;
    for (int64_t i = begin; i < end; ++i) {
        auto sum = Type::load(static_cast<const Element*>(ins[0])[i]);
        for (size_t p = 1; p < ins.size(); ++p)
            sum = Op::apply(sum, Type::load(static_cast<const Element*>(ins[p])[i]));
        const Element result = Type::store(sum);
        for (void* out : outs) static_cast<Element*>(out)[i] = result;
    }
}

#if defined(__x86_64__)
// Vectors of 32 bytes for AVX2. Eight bf16 or f16 elements are widened to one vector of f32.

struct VectorInt {
    using V = __m256i;
    static constexpr int64_t bytes = 32;
    ORRERY_AVX2 V load(const char* p) { return _mm256_loadu_si256(reinterpret_cast<const V*>(p)); }
    ORRERY_AVX2 void store(char* p, V v) { _mm256_storeu_si256(reinterpret_cast<V*>(p), v); }
    ORRERY_AVX2 void stream(char* p, V v) { _mm256_stream_si256(reinterpret_cast<V*>(p), v); }
};
struct VectorF32 {
    using V = __m256;
    static constexpr int64_t bytes = 32;
    ORRERY_AVX2 V load(const char* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
    ORRERY_AVX2 void store(char* p, V v) { _mm256_storeu_ps(reinterpret_cast<float*>(p), v); }
    ORRERY_AVX2 void stream(char* p, V v) { _mm256_stream_ps(reinterpret_cast<float*>(p), v); }
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_ps(a, b); }
    // Returns NaN when a or b is NaN; the max and min instructions alone would then return b.
    ORRERY_AVX2 V apply(Max, V a, V b) { return keep_nan(a, _mm256_max_ps(a, b)); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return keep_nan(a, _mm256_min_ps(a, b)); }
    ORRERY_AVX2 V keep_nan(V a, V r) { return _mm256_blendv_ps(r, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
};
struct VectorF64 {
    using V = __m256d;
    static constexpr int64_t bytes = 32;
    ORRERY_AVX2 V load(const char* p) { return _mm256_loadu_pd(reinterpret_cast<const double*>(p)); }
    ORRERY_AVX2 void store(char* p, V v) { _mm256_storeu_pd(reinterpret_cast<double*>(p), v); }
    ORRERY_AVX2 void stream(char* p, V v) { _mm256_stream_pd(reinterpret_cast<double*>(p), v); }
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_pd(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return keep_nan(a, _mm256_max_pd(a, b)); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return keep_nan(a, _mm256_min_pd(a, b)); }
    ORRERY_AVX2 V keep_nan(V a, V r) { return _mm256_blendv_pd(r, a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q)); }
};
struct VectorBf16 {
    using V = __m256;
    static constexpr int64_t bytes = 16;
    ORRERY_AVX2 V load(const char* p) {
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    }
    ORRERY_AVX2 __m128i pack(V v) {
        const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
        const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
        const __m256i even = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
        const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        const __m256i r = _mm256_blendv_epi8(_mm256_srli_epi32(even, 16), nan, is_nan);
        return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08));
    }
    ORRERY_AVX2 void store(char* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), pack(v)); }
    ORRERY_AVX2 void stream(char* p, V v) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), pack(v)); }
    template <class Op>
    ORRERY_AVX2 V apply(Op op, V a, V b) {
        return VectorF32::apply(op, a, b);
    }
};
struct VectorF16 {
    using V = __m256;
    static constexpr int64_t bytes = 16;
    ORRERY_AVX2 V load(const char* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
    ORRERY_AVX2 __m128i pack(V v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
    ORRERY_AVX2 void store(char* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), pack(v)); }
    ORRERY_AVX2 void stream(char* p, V v) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), pack(v)); }
    template <class Op>
    ORRERY_AVX2 V apply(Op op, V a, V b) {
        return VectorF32::apply(op, a, b);
    }
};
struct VectorI32 : VectorInt {
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_epi32(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return _mm256_max_epi32(a, b); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return _mm256_min_epi32(a, b); }
};
struct VectorU32 : VectorInt {
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_epi32(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return _mm256_max_epu32(a, b); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return _mm256_min_epu32(a, b); }
};
struct VectorI64 : VectorInt {
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_epi64(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)); }
};
struct VectorU16 : VectorInt {
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_epi16(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return _mm256_max_epu16(a, b); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return _mm256_min_epu16(a, b); }
};
struct VectorU8 : VectorInt {
    ORRERY_AVX2 V apply(Sum, V a, V b) { return _mm256_add_epi8(a, b); }
    ORRERY_AVX2 V apply(Max, V a, V b) { return _mm256_max_epu8(a, b); }
    ORRERY_AVX2 V apply(Min, V a, V b) { return _mm256_min_epu8(a, b); }
};

constexpr int64_t write_ahead = 512;  ///< distance in bytes at which stores are prefetched

/// Reduces with AVX2 in groups of four vectors, from byte `from` on; returns the byte where it stopped. The common case
/// of two inputs has its own loop.
template <class Vector, class Op, bool two>
[[gnu::target("avx2,f16c")]] int64_t reduce_avx2(Ins ins, Outs outs, int64_t from, int64_t bytes, bool stream) {
    constexpr int64_t step = Vector::bytes, group = 4 * step;
    const size_t count = two ? 2 : ins.size();
    const auto in = [&](size_t p) { return static_cast<const char*>(ins[p]); };
    int64_t at = from;
    for (; at + group <= bytes; at += group) {
        typename Vector::V sum[4];
        for (int k = 0; k < 4; ++k) sum[k] = Vector::load(in(0) + at + k * step);
        for (size_t p = 1; p < count; ++p)
            for (int k = 0; k < 4; ++k) sum[k] = Vector::apply(Op{}, sum[k], Vector::load(in(p) + at + k * step));
        for (void* out : outs) {
            char* to = static_cast<char*>(out) + at;
            if (stream) {
                for (int k = 0; k < 4; ++k) Vector::stream(to + k * step, sum[k]);
                continue;
            }
            // Prefetches the output's cache lines for writing: if another core owns them, each store would miss.
            for (int64_t line = 0; line < group; line += 64)
                asm volatile("prefetchw %0" : : "m"(to[write_ahead + line]));
            for (int k = 0; k < 4; ++k) Vector::store(to + k * step, sum[k]);
        }
    }
    if (stream) _mm_sfence();
    return at;
}
#endif

template <class Type, class Vector, class Op>
void reduce_as(Ins ins, Outs outs, int64_t count, bool stream) {
    int64_t done = 0;
#if defined(__x86_64__)
    static const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (fast) {
        constexpr int64_t size = sizeof(typename Type::Element);
        const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 32 == 0; };
        // Streaming stores need 32-byte alignment, which arenas and blocks with sizes of a power of two have.
        stream = stream && std::all_of(outs.begin(), outs.end(), aligned);
        done = (ins.size() == 2 ? reduce_avx2<Vector, Op, true>(ins, outs, 0, count * size, stream)
                                : reduce_avx2<Vector, Op, false>(ins, outs, 0, count * size, stream)) /
               size;
    }
#endif
    reduce_scalar<Type, Op>(ins, outs, done, count);
}

template <class Type, class Vector>
void reduce_with(ReduceOp op, Ins ins, Outs outs, int64_t count, bool stream) {
    switch (op) {
        case ReduceOp::sum: return reduce_as<Type, Vector, Sum>(ins, outs, count, stream);
        case ReduceOp::max: return reduce_as<Type, Vector, Max>(ins, outs, count, stream);
        case ReduceOp::min: return reduce_as<Type, Vector, Min>(ins, outs, count, stream);
    }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, Ins ins, Outs outs, int64_t count, bool stream) {
    switch (dtype) {
        case DType::f32: return reduce_with<Plain<float>, VectorF32>(op, ins, outs, count, stream);
        case DType::f64: return reduce_with<Plain<double>, VectorF64>(op, ins, outs, count, stream);
        case DType::bf16: return reduce_with<Bf16, VectorBf16>(op, ins, outs, count, stream);
        case DType::f16: return reduce_with<F16, VectorF16>(op, ins, outs, count, stream);
        case DType::i32:
            // Integers are summed as unsigned, since C++ defines overflow of these only: they wrap around.
            if (op == ReduceOp::sum) return reduce_with<Plain<uint32_t>, VectorU32>(op, ins, outs, count, stream);
            return reduce_with<Plain<int32_t>, VectorI32>(op, ins, outs, count, stream);
        case DType::i64:
            if (op == ReduceOp::sum) return reduce_with<Plain<uint64_t>, VectorI64>(op, ins, outs, count, stream);
            return reduce_with<Plain<int64_t>, VectorI64>(op, ins, outs, count, stream);
        case DType::u32: return reduce_with<Plain<uint32_t>, VectorU32>(op, ins, outs, count, stream);
        case DType::u16: return reduce_with<Plain<uint16_t, uint32_t>, VectorU16>(op, ins, outs, count, stream);
        case DType::u8: return reduce_with<Plain<uint8_t, uint32_t>, VectorU8>(op, ins, outs, count, stream);
        case DType::i8:
        case DType::f8e4m3:
        case DType::f8e5m2:
            throw Error(
                fmt::format("unsupported: reducing {} across ranks, because their scales differ; reduce bf16 or f32",
                            name_of(dtype)));
    }
}

}  // namespace orrery
