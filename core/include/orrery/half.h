#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace orrery {

/// Converts bf16 to f32, exactly.
inline float widen_bf16(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

inline float widen_f16(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16, body = half & 0x7fffu;
    if (body >= 0x7c00)
        return std::bit_cast<float>(sign | 0x7f800000u | (body > 0x7c00 ? 0x400000u | (body & 0x3ff) << 13 : 0));
    // Scaling by 2^112 converts the exponent bias of half to that of float, and makes subnormals normal, exactly.
    const float value = std::bit_cast<float>(body << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

/// Rounds to the nearest bf16, ties to even.
inline uint16_t narrow_bf16(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint16_t narrow_f16(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const uint32_t body = bits & 0x7fffffff;
    if (body > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (body >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more become infinity
    if (body < 0x38800000)  // the result is a subnormal f16, a multiple of 2^-24
        return static_cast<uint16_t>(sign |
                                     static_cast<uint16_t>(std::nearbyint(std::bit_cast<float>(body) * 0x1p24f)));
    return static_cast<uint16_t>(sign | (body - 0x38000000 + 0xfff + (body >> 13 & 1)) >> 13);
}

/// Converts an 8-bit float to f32, exactly (OCP 8-bit Floating Point Specification 1.0). e4m3 has no infinity and a
/// maximum of 448; the maximum of e5m2 is 57344.
inline float widen_f8(uint8_t bits, int mantissa, int bias) {
    const int exponent = (bits & 0x7f) >> mantissa, rest = bits & ((1 << mantissa) - 1);
    const float size = exponent == 0
                           ? std::ldexp(static_cast<float>(rest), 1 - bias - mantissa)
                           : std::ldexp(static_cast<float>((1 << mantissa) + rest), exponent - bias - mantissa);
    return bits & 0x80 ? -size : size;
}

inline float widen_f8e4m3(uint8_t bits) {
    return (bits & 0x7f) == 0x7f ? std::bit_cast<float>(0x7fc00000u) : widen_f8(bits, 3, 7);
}

inline float widen_f8e5m2(uint8_t bits) {
    const int body = bits & 0x7f;
    if (body > 0x7c) return std::bit_cast<float>(0x7fc00000u);
    if (body == 0x7c) return std::bit_cast<float>(bits & 0x80 ? 0xff800000u : 0x7f800000u);
    return widen_f8(bits, 2, 15);
}

/// Rounds to the nearest 8-bit float, ties to even. Magnitudes above `largest`, the max of the type, become `largest`.
inline uint8_t narrow_f8(float x, int mantissa, int bias, float largest) {
    const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(x) >> 24 & 0x80);
    if (x != x) return static_cast<uint8_t>(sign | 0x7f);
    const float size = std::fmin(std::fabs(x), largest);
    if (size == 0) return sign;
    int exponent = std::ilogb(size) < 1 - bias ? 1 - bias : std::ilogb(size);
    auto units = static_cast<int>(std::nearbyint(std::ldexp(size, mantissa - exponent)));
    if (units == 2 << mantissa) units >>= 1, ++exponent;
    const int body = units < 1 << mantissa ? units : ((exponent + bias - 1) << mantissa) + units;
    return static_cast<uint8_t>(sign | body);
}

inline uint8_t narrow_f8e4m3(float x) { return narrow_f8(x, 3, 7, 448); }
inline uint8_t narrow_f8e5m2(float x) { return narrow_f8(x, 2, 15, 57344); }

/// 16-bit floats for kernels: `y[i] = 2 * x[i]` computes in f32 and rounds to the nearest.
struct BFloat16 {
    uint16_t bits = 0;
    BFloat16() = default;
    BFloat16(float x) : bits(narrow_bf16(x)) {}
    operator float() const { return widen_bf16(bits); }
};

struct Float16 {
    uint16_t bits = 0;
    Float16() = default;
    Float16(float x) : bits(narrow_f16(x)) {}
    operator float() const { return widen_f16(bits); }
};

}  // namespace orrery
