#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace orrery {

/// Exact: every 16-bit float is an f32.
inline float widen_bf16(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

inline float widen_f16(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16, body = half & 0x7fffu;
    if (body >= 0x7c00)
        return std::bit_cast<float>(sign | 0x7f800000u | (body > 0x7c00 ? 0x400000u | (body & 0x3ff) << 13 : 0));
    // 2^112 moves the exponent from half's bias to float's and makes subnormals normal, exactly.
    const float value = std::bit_cast<float>(body << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

/// To the nearest, ties to even.
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
    if (body >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and beyond
    if (body < 0x38800000)                                                // subnormal: units of 2^-24
        return static_cast<uint16_t>(sign |
                                     static_cast<uint16_t>(std::nearbyint(std::bit_cast<float>(body) * 0x1p24f)));
    return static_cast<uint16_t>(sign | (body - 0x38000000 + 0xfff + (body >> 13 & 1)) >> 13);
}

/// Elements of 16 bits as kernels read and write them: `y[i] = 2 * x[i]` computes in f32 and rounds to the nearest.
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
