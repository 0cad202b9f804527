// Runs of eight neighbouring elements, read and written as floats, 16 bytes at a time where addresses allow.
#pragma once

#include "kernels/cuda/block.h"

namespace orrery::kernels::ORRERY_BLOCKS {

constexpr int run = 8;
/// Bytes moved by one access.
struct alignas(16) Words {
    std::uint32_t w[4];
};

ORRERY_DEVICE float widen(float x) { return x; }
ORRERY_DEVICE float widen(bf16 x) { return to_float(x); }
ORRERY_DEVICE float widen(f16 x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    return to_float(x);
#endif
}

ORRERY_DEVICE void narrow(float x, float& y) { y = x; }
ORRERY_DEVICE void narrow(float x, bf16& y) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    y = to_bf16(x);
#endif
}
ORRERY_DEVICE void narrow(float x, f16& y) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    y = to_f16(x);
#endif
}

ORRERY_DEVICE void copy16(const void* from, void* to) {
#if defined(__CUDA_ARCH__)
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#else
    *static_cast<Words*>(to) = *static_cast<const Words*>(from);
#endif
}

/// The first `left` elements at p, zeros behind them. wide: p is aligned to 16 bytes.
template <class T>
ORRERY_DEVICE void load_run(const T* p, i64 left, bool wide, float (&v)[run]) {
    if (wide && left >= run) {
        alignas(16) T raw[run];
        for (int w = 0; w < static_cast<int>(sizeof(T)) / 2; ++w)
            copy16(p + w * 16 / sizeof(T), raw + w * 16 / sizeof(T));
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = widen(raw[l]);
    } else {
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = l < left ? widen(p[l]) : 0.0f;
    }
}

template <class T>
ORRERY_DEVICE void store_run(T* p, i64 left, bool wide, const float (&v)[run]) {
    if (wide && left >= run) {
        alignas(16) T raw[run];
#pragma unroll
        for (int l = 0; l < run; ++l) narrow(v[l], raw[l]);
        for (int w = 0; w < static_cast<int>(sizeof(T)) / 2; ++w)
            copy16(raw + w * 16 / sizeof(T), p + w * 16 / sizeof(T));
    } else {
#pragma unroll
        for (int l = 0; l < run; ++l) {
            if (l < left) narrow(v[l], p[l]);
        }
    }
}

inline bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
/// Whether rows of `cols` elements at p all begin at multiples of 16 bytes.
inline bool aligned_rows(const void* p, Type type, i64 cols) { return aligned(p) && cols * size_of(type) % 16 == 0; }

/// An operand of f32, bf16 or f16, told apart when the kernel runs: the same in all threads, for what is not the
/// hottest.
struct AnyIn {
    const void* data = nullptr;
    Type type = Type::f32;
    bool wide = false;  ///< runs that are asked for begin at multiples of 16 bytes

    AnyIn() = default;
    AnyIn(In x, bool wide) : data(x.data), type(x.type), wide(wide) {}
    ORRERY_DEVICE bool absent() const { return data == nullptr; }
    ORRERY_DEVICE float at(i64 i) const { return as<float>(i); }
    /// Element i of any type as a V: double holds all of them exactly.
    template <class V>
    ORRERY_DEVICE V as(i64 i) const {
        switch (type) {
            case Type::bf16: return static_cast<V>(widen(static_cast<const bf16*>(data)[i]));
            case Type::f16: return static_cast<V>(widen(static_cast<const f16*>(data)[i]));
            case Type::i32: return static_cast<V>(static_cast<const std::int32_t*>(data)[i]);
            case Type::u32: return static_cast<V>(static_cast<const std::uint32_t*>(data)[i]);
            case Type::u8: return static_cast<V>(static_cast<const std::uint8_t*>(data)[i]);
            case Type::f64: return static_cast<V>(static_cast<const double*>(data)[i]);
            default: return static_cast<V>(static_cast<const float*>(data)[i]);
        }
    }
    ORRERY_DEVICE void load(i64 i, i64 left, float (&v)[run]) const {
        switch (type) {
            case Type::bf16: return load_run(static_cast<const bf16*>(data) + i, left, wide, v);
            case Type::f16: return load_run(static_cast<const f16*>(data) + i, left, wide, v);
            default: return load_run(static_cast<const float*>(data) + i, left, wide, v);
        }
    }
};

struct AnyOut {
    void* data = nullptr;
    Type type = Type::f32;
    bool wide = false;

    AnyOut() = default;
    AnyOut(Out x, bool wide) : data(x.data), type(x.type), wide(wide) {}
    ORRERY_DEVICE bool absent() const { return data == nullptr; }
    /// Rounds to the type of the result; integers truncate.
    template <class V>
    ORRERY_DEVICE void put(i64 i, V v) const {
        switch (type) {
            case Type::bf16: return narrow(static_cast<float>(v), static_cast<bf16*>(data)[i]);
            case Type::f16: return narrow(static_cast<float>(v), static_cast<f16*>(data)[i]);
            case Type::i32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(v); return;
            case Type::u32: static_cast<std::uint32_t*>(data)[i] = static_cast<std::uint32_t>(v); return;
            case Type::u8: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(v); return;
            case Type::f64: static_cast<double*>(data)[i] = static_cast<double>(v); return;
            default: static_cast<float*>(data)[i] = static_cast<float>(v);
        }
    }
    /// y = v, or y += v in f32.
    ORRERY_DEVICE void put(i64 i, float v, bool add) const { put(i, add ? v + old(i) : v); }
    ORRERY_DEVICE void store(i64 i, i64 left, const float (&v)[run]) const {
        switch (type) {
            case Type::bf16: return store_run(static_cast<bf16*>(data) + i, left, wide, v);
            case Type::f16: return store_run(static_cast<f16*>(data) + i, left, wide, v);
            default: return store_run(static_cast<float*>(data) + i, left, wide, v);
        }
    }

private:
    ORRERY_DEVICE float old(i64 i) const {
        AnyIn in;
        in.data = data;
        in.type = type;
        return in.at(i);
    }
};

/// Calls f with a null pointer of the element type; for f32, bf16, f16.
template <class F>
void visit_float(Type type, F f) {
    switch (type) {
        case Type::bf16: return f(static_cast<bf16*>(nullptr));
        case Type::f16: return f(static_cast<f16*>(nullptr));
        default: return f(static_cast<float*>(nullptr));
    }
}

inline i64 count_of(Shape shape) {
    i64 n = 1;
    for (i64 size : shape) n *= size;
    return n;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
