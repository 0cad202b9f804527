// A vector of floats as wide as the instruction set that this file is compiled for (ORRERY_ISA).
//
// GCC's vector extensions provide the operators; intrinsics are used for the rest. Everything is inlined and in the
// namespace of the instruction set. exp: 2 ulp; below -86.9 it is 0. erf: 2e-7 absolute. tanh: 3 ulp.
#pragma once

#include <cstring>

#include "kernels/types.h"
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace orrery::kernels::cpu::ORRERY_ISA {

#define ORRERY_INLINE [[gnu::always_inline]] inline

using i64 = std::int64_t;

#if defined(__AVX512F__)
constexpr int width = 16;
#elif defined(__AVX2__)
constexpr int width = 8;
#else
constexpr int width = 4;
#endif

typedef float Floats __attribute__((vector_size(width * 4)));
typedef std::int32_t Ints __attribute__((vector_size(width * 4)));
typedef std::uint32_t Words __attribute__((vector_size(width * 4)));
typedef std::uint16_t Halves __attribute__((vector_size(width * 2)));

struct Mask {
    Ints v;
};

ORRERY_INLINE Floats broadcast(float x) {
#if defined(__AVX512F__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return Floats{x, x, x, x};
#endif
}

struct Vec {
    Floats v;

    Vec() = default;
    ORRERY_INLINE Vec(Floats x) : v(x) {}
    ORRERY_INLINE explicit Vec(float x) : v(broadcast(x)) {}
    ORRERY_INLINE explicit Vec(double x) : v(broadcast(static_cast<float>(x))) {}
};

ORRERY_INLINE Vec operator+(Vec a, Vec b) { return a.v + b.v; }
ORRERY_INLINE Vec operator-(Vec a, Vec b) { return a.v - b.v; }
ORRERY_INLINE Vec operator*(Vec a, Vec b) { return a.v * b.v; }
ORRERY_INLINE Vec operator/(Vec a, Vec b) { return a.v / b.v; }
ORRERY_INLINE Vec operator-(Vec a) { return -a.v; }
ORRERY_INLINE Vec& operator+=(Vec& a, Vec b) { return a = a + b; }
ORRERY_INLINE Mask operator>(Vec a, Vec b) { return {a.v > b.v}; }
ORRERY_INLINE Mask operator>=(Vec a, Vec b) { return {a.v >= b.v}; }
ORRERY_INLINE Mask operator<(Vec a, Vec b) { return {a.v < b.v}; }
ORRERY_INLINE Mask operator<=(Vec a, Vec b) { return {a.v <= b.v}; }
ORRERY_INLINE Mask operator==(Vec a, Vec b) { return {a.v == b.v}; }
ORRERY_INLINE Vec select(Mask m, Vec a, Vec b) { return m.v ? a.v : b.v; }

ORRERY_INLINE Vec load(const float* p) {
    Floats v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}
ORRERY_INLINE void store(Vec x, float* p) { __builtin_memcpy(p, &x.v, sizeof(x.v)); }

/// Loads the first n < width elements; the others are `rest`.
ORRERY_INLINE Vec load(const float* p, i64 n, float rest = 0) {
    float lanes[width];
    for (int i = 0; i < width; ++i) lanes[i] = i < n ? p[i] : rest;
    return load(lanes);
}
ORRERY_INLINE void store(Vec x, float* p, i64 n) {
    float lanes[width];
    store(x, lanes);
    for (i64 i = 0; i < n; ++i) p[i] = lanes[i];
}

/// a b + c, rounded once if the machine can.
ORRERY_INLINE Vec fma(Vec a, Vec b, Vec c) { return a.v * b.v + c.v; }

/// Upper and lower words of a * c, by lane.
ORRERY_INLINE void multiply_wide(Words a, std::uint32_t c, Words& high, Words& low) {
#ifdef __SSE2__
    typedef std::uint64_t Wide __attribute__((vector_size(width * 4)));
    const Wide factor = Wide{} + c, odd = (Wide)a >> 32;
#if defined(__AVX512F__)
    const Wide p = (Wide)_mm512_mul_epu32((__m512i)a, (__m512i)factor),
               q = (Wide)_mm512_mul_epu32((__m512i)odd, (__m512i)factor);
#elif defined(__AVX2__)
    const Wide p = (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)factor),
               q = (Wide)_mm256_mul_epu32((__m256i)odd, (__m256i)factor);
#else
    const Wide p = (Wide)_mm_mul_epu32((__m128i)a, (__m128i)factor),
               q = (Wide)_mm_mul_epu32((__m128i)odd, (__m128i)factor);
#endif
    const Wide upper = Wide{} + 0xffffffff00000000u;
    high = (Words)((p >> 32) | (q & upper));
    low = (Words)((p & ~upper) | (q << 32));
#else
    for (int i = 0; i < width; ++i) {
        const std::uint64_t p = std::uint64_t{c} * a[i];
        high[i] = static_cast<std::uint32_t>(p >> 32);
        low[i] = static_cast<std::uint32_t>(p);
    }
#endif
}

ORRERY_INLINE Vec abs(Vec x) { return (Floats)((Words)x.v & 0x7fffffffu); }

ORRERY_INLINE Vec sqrt(Vec x) {
#if defined(__AVX512F__)
    return Floats(_mm512_sqrt_ps(x.v));
#elif defined(__AVX2__)
    return Floats(_mm256_sqrt_ps(x.v));
#else
    Floats y;
    for (int i = 0; i < width; ++i) y[i] = __builtin_sqrtf(x.v[i]);
    return y;
#endif
}

/// a > b ? a : b, so a NaN in b wins.
ORRERY_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
    return Floats(_mm512_max_ps(a.v, b.v));
#elif defined(__AVX2__)
    return Floats(_mm256_max_ps(a.v, b.v));
#else
    return a.v > b.v ? a.v : b.v;
#endif
}
ORRERY_INLINE Vec min(Vec a, Vec b) { return a.v < b.v ? a.v : b.v; }

ORRERY_INLINE float sum(Vec x) {
    float lanes[width];
    store(x, lanes);
    for (int step = width / 2; step > 0; step /= 2) {
        for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
    }
    return lanes[0];
}

ORRERY_INLINE float max_of(Vec x) {
    float lanes[width];
    store(x, lanes);
    for (int i = 1; i < width; ++i) lanes[0] = lanes[i] > lanes[0] || lanes[i] != lanes[i] ? lanes[i] : lanes[0];
    return lanes[0];
}

ORRERY_INLINE Vec exp(Vec x) {
    const Vec low(-86.9f), high(89.0f);
    const Vec inside = select(x < low, low, select(x > high, high, x));
    // n = round(x / ln 2) by adding the magic number 1.5 * 2^23: the sum has n in its low bits.
    const Vec magic(12582912.0f);
    const Vec shifted = fma(inside, Vec(1.44269504088896341f), magic);
    const Vec n = shifted - magic;
    const Vec r = fma(n, Vec(-1.428606765330187e-06f), fma(n, Vec(-0.693145751953125f), inside));
    // exp(r) = 1 + r + r^2 P(r), P fitted to 3e-9 on |r| <= ln(2)/2.
    Vec p(1.39507239e-3f);
    p = fma(p, r, Vec(8.36902505e-3f));
    p = fma(p, r, Vec(4.16662023e-2f));
    p = fma(p, r, Vec(1.66665177e-1f));
    p = fma(p, r, Vec(0.5f));
    p = fma(p * r, r, r) + Vec(1.0f);
    // 2^n as 2 * 2^(n-1), so that n = 128 still has an exponent.
    const Words exponent = ((Words)shifted.v - 0x4b400000u + 126u) << 23;
    const Vec y = p * Vec((Floats)exponent) * Vec(2.0f);
    return select(x < low, Vec(0.0f), y);
}

ORRERY_INLINE Vec tanh(Vec x) {
    const Vec a = abs(x), xx = x * x;
    // Near 0: x + x^3 P(x^2), P fitted to 4e-9 on [0, 0.625]; elsewhere 1 - 2 / (exp(2a) + 1).
    Vec p(-5.71703631e-3f);
    p = fma(p, xx, Vec(2.06505787e-2f));
    p = fma(p, xx, Vec(-5.37434965e-2f));
    p = fma(p, xx, Vec(1.33314908e-1f));
    p = fma(p, xx, Vec(-3.33332837e-1f));
    const Vec small = fma(p * xx, x, x);
    const Vec big = Vec(1.0f) - Vec(2.0f) / (exp(a + a) + Vec(1.0f));
    const Words sign = (Words)x.v & 0x80000000u;
    return select(a < Vec(0.625f), small, Vec((Floats)((Words)big.v | sign)));
}

/// 1 - t P(t) exp(-x^2) with t = 1 / (1 + 0.45 |x|), P fitted to 1e-9. The absolute error matters: gelu has 1 + erf.
ORRERY_INLINE Vec erf(Vec x) {
    const Vec a = abs(x);
    const Vec t = Vec(1.0f) / fma(a, Vec(0.45f), Vec(1.0f));
    Vec p(0.0925699129f);
    p = fma(p, t, Vec(-0.494105628f));
    p = fma(p, t, Vec(0.85717036f));
    p = fma(p, t, Vec(-0.375805498f));
    p = fma(p, t, Vec(0.460172208f));
    p = fma(p, t, Vec(0.201008896f));
    p = fma(p, t, Vec(0.258989751f));
    const Vec y = Vec(1.0f) - p * t * exp(-(a * a));
    const Words sign = (Words)x.v & 0x80000000u;
    return Vec((Floats)((Words)y.v | sign));
}

ORRERY_INLINE Vec load(const bf16* p) {
    Halves h;
    __builtin_memcpy(&h, p, sizeof(h));
    return (Floats)(__builtin_convertvector(h, Words) << 16);
}

ORRERY_INLINE void store(Vec x, bf16* p) {
    const Words u = (Words)x.v;
    const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const Words quiet = (u >> 16) | 0x40u;
    const Halves h = __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, Halves);
    __builtin_memcpy(p, &h, sizeof(h));
}

ORRERY_INLINE Vec load(const f16* p) {
#if defined(__AVX512F__)
    return Floats(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
    return Floats(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
    Floats v;
    for (int i = 0; i < width; ++i) v[i] = to_float(p[i]);
    return v;
#endif
}

ORRERY_INLINE void store(Vec x, f16* p) {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < width; ++i) p[i] = to_f16(x.v[i]);
#endif
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
