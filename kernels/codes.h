// Codes of blocks. All devices run the same f32 operations, so codes and scales are equal bit for bit, except the
// scales of sign: each device adds the magnitudes in its own order. The scale of a block with NaNs is the one with the
// largest payload, without its sign. Devices may differ in the bits of an f16 element that is a NaN, and in the sign of
// an f8 code that is a NaN.
//
// A block of n elements x with the largest magnitude t has a scale s. d: what its codes stand for.
//   i8, i4: s = t / 127 or t / 7. |x - d| <= 0.501 s: half a step, and what rounding x / s in f32 adds.
//   i2:     s = t / 2. |x - d| <= s / 2, since |d| is s / 2 for |x| up to s, and 3 s / 2 from there to 2 s.
//   sign:   s = the mean of |x|. ||x - d||^2 = ||x||^2 - n s^2 <= ||x||^2, also with s rounded.
//   f8e4m3: s = t / 448. |x - d| <= 2^-4 |x| + 2^-10 s: half of the last of 3 bits, and of the smallest number.
//   f8e5m2: s = t / 57344. |x - d| <= 2^-3 |x| + 2^-17 s.
// d is exact for a bf16 s, and rounded once for an f32 one. A bf16 s is rounded up, by less than 2^-7 of it: rounded
// down it would leave t out of range. All s but those of i2 and sign are at least 2^-126, because codes are x times 1 /
// s, which must be finite: that adds less than 2^-126 to the error of an element, as does a device that takes denormal
// numbers as 0. With an infinite element or a NaN in x, s and each d are infinite or NaN. Sums of |x| over a block of
// sign must be finite in f32.
#pragma once

#include "kernels/kernels.h"

namespace orrery::kernels {

/// Bytes of n packed codes of 4, 2 or 1 bits.
ORRERY_HOST_DEVICE constexpr std::int64_t packed_bytes(std::int64_t n, std::int64_t bits) { return (n * bits + 7) / 8; }

/// Mantissa bits of 8-bit floats (OCP 8-bit Floating Point Specification 1.0) are 3 for e4m3, 2 for e5m2.
template <int mantissa>
struct F8 {
    static constexpr int bias = mantissa == 3 ? 7 : 15, shift = 23 - mantissa;
    static constexpr std::uint32_t largest = mantissa == 3 ? 0x7e : 0x7b;
    static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << mantissa;
    static constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
    /// The smallest number, and the f32 with a last place of that.
    static constexpr float unit = std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias - mantissa) << 23);
    static constexpr float aligned = std::bit_cast<float>(static_cast<std::uint32_t>(151 - bias - mantissa) << 23);
};

/// Rounds to nearest even; magnitudes above the largest number become that; a NaN stays one.
template <int mantissa>
ORRERY_HOST_DEVICE std::uint8_t to_f8(float x) {
    using T = F8<mantissa>;
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t size = bits & 0x7fffffffu;
    const float magnitude = std::bit_cast<float>(size) + T::aligned;
    std::uint32_t code = std::bit_cast<std::uint32_t>(magnitude) - std::bit_cast<std::uint32_t>(T::aligned);
    if (size >= T::least_normal)
        code = ((size + (1u << (T::shift - 1)) - 1 + (size >> T::shift & 1u)) >> T::shift) - T::rebias;
    if (code > T::largest) code = T::largest;
    if (size > 0x7f800000u) code = 0x7f;
    return static_cast<std::uint8_t>((bits >> 24 & 0x80u) | code);
}

/// Converts an 8-bit float to f32, exactly.
template <int mantissa>
ORRERY_HOST_DEVICE float from_f8(std::uint8_t code) {
    using T = F8<mantissa>;
    const std::uint32_t sign = (code & 0x80u) << 24, rest = code & 0x7fu;
    std::uint32_t size = (rest + T::rebias) << T::shift;
    if (rest < 1u << mantissa) size = std::bit_cast<std::uint32_t>(static_cast<float>(rest) * T::unit);
    if (rest > T::largest) size = mantissa == 2 && rest == 0x7c ? 0x7f800000u : 0x7fc00000u;
    return std::bit_cast<float>(sign | size);
}

/// Rounded to the nearest on a GPU, too, where plain quotients are not.
ORRERY_HOST_DEVICE float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

/// The scale of a block from its largest magnitude, or for Code::sign from its mean magnitude. narrow: rounded up to
/// bf16.
ORRERY_HOST_DEVICE float scale_of(Code code, float top, bool narrow) {
    const float largest = code == Code::i8       ? 127.0f
                          : code == Code::i4     ? 7.0f
                          : code == Code::i2     ? 2.0f
                          : code == Code::f8e4m3 ? 448.0f
                          : code == Code::f8e5m2 ? 57344.0f
                                                 : 1.0f;
    // As division does on a CPU; on a GPU it gives all NaNs the same bits.
    const auto quiet = std::bit_cast<float>(std::bit_cast<std::uint32_t>(top) | 0x400000u);
    float scale = top == top ? quotient(top, largest) : quiet;
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    if (narrow) scale = std::bit_cast<float>((bits > 0x7f800000u ? bits | 0x400000u : bits + 0xffffu) & 0xffff0000u);
    const bool divides = code != Code::i2 && code != Code::sign;
    return divides && scale < 0x1p-126f ? 0x1p-126f : scale;
}

/// By what elements are multiplied, where codes divide by the scale.
ORRERY_HOST_DEVICE float inverse_of(float scale) { return quotient(1.0f, scale); }

/// The code of x as a byte.
ORRERY_HOST_DEVICE std::uint8_t code_of(Code code, float x, float scale, float inverse) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t negative = bits >> 31 != 0 ? 0xffu : 0u;
    if (code == Code::sign) return static_cast<std::uint8_t>(negative);
    if (code == Code::i2)
        return static_cast<std::uint8_t>(negative ^ (std::bit_cast<float>(bits & 0x7fffffffu) > scale ? 1u : 0u));
    const float y = x * inverse;
    if (code == Code::f8e4m3) return to_f8<3>(y);
    if (code == Code::f8e5m2) return to_f8<2>(y);
#if defined(__CUDA_ARCH__)
    return static_cast<std::uint8_t>(__float2int_rn(y));  // of a NaN: 0
#else
    return y == y ? static_cast<std::uint8_t>(static_cast<std::int32_t>(__builtin_rintf(y))) : std::uint8_t{0};
#endif
}

/// What a code stands for.
ORRERY_HOST_DEVICE float value_of(Code code, std::uint8_t q, float scale) {
    if (code == Code::f8e4m3) return from_f8<3>(q) * scale;
    if (code == Code::f8e5m2) return from_f8<2>(q) * scale;
    const auto whole = static_cast<float>(static_cast<std::int8_t>(q));
    return (code == Code::sign ? 2 * whole + 1 : code == Code::i2 ? whole + 0.5f : whole) * scale;
}

}  // namespace orrery::kernels
