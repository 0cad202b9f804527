#pragma once
#include <bit>
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

}  // namespace orrery
