// Runs of eight adjacent elements, read and written as floats, 16 bytes at a time where addresses allow.
#pragma once

#include <bit>

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

/// Loads 16 bytes from an aligned device address by one access, which a compiler would split into words.
ORRERY_DEVICE Words load16(const void* p) {
#if defined(__CUDA_ARCH__)
    Words x;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return x;
#else
    return *static_cast<const Words*>(p);
#endif
}
/// Zeros if not `there`, without a branch, so that several loads can be in flight.
ORRERY_DEVICE Words load16(const void* p, bool there) {
    Words x{};
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .pred there; setp.ne.u32 there, %5, 0; @there ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(x.w[0]), "+r"(x.w[1]), "+r"(x.w[2]), "+r"(x.w[3])
                 : "l"(__cvta_generic_to_global(p)), "r"(there ? 1u : 0u)
                 : "memory");
#else
    if (there) x = *static_cast<const Words*>(p);
#endif
    return x;
}
/// Loads 8 bytes to the first two words.
ORRERY_DEVICE Words load8(const void* p, bool there) {
    Words x{};
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .pred there; setp.ne.u32 there, %3, 0; @there ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(x.w[0]), "+r"(x.w[1])
                 : "l"(__cvta_generic_to_global(p)), "r"(there ? 1u : 0u)
                 : "memory");
#else
    for (int k = 0; there && k < 2; ++k) x.w[k] = static_cast<const std::uint32_t*>(p)[k];
#endif
    return x;
}
ORRERY_DEVICE void store16(void* p, const Words& x) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
                 : "memory");
#else
    *static_cast<Words*>(p) = x;
#endif
}

/// A run as stored in memory. Kernels fetch all that they need before they unpack any of it.
template <class T>
struct Packed {
    static constexpr int accesses = static_cast<int>(sizeof(T)) / 2;
    Words part[accesses];
};

template <class T>
ORRERY_DEVICE void fetch(const T* p, bool there, Packed<T>& x) {
#pragma unroll
    for (int k = 0; k < Packed<T>::accesses; ++k) x.part[k] = load16(p + k * 16 / sizeof(T), there);
}
template <class T>
ORRERY_DEVICE void fetch(const T* p, Packed<T>& x) {
#pragma unroll
    for (int k = 0; k < Packed<T>::accesses; ++k) x.part[k] = load16(p + k * 16 / sizeof(T));
}
template <class T>
ORRERY_DEVICE void put(T* p, const Packed<T>& x) {
#pragma unroll
    for (int k = 0; k < Packed<T>::accesses; ++k) store16(p + k * 16 / sizeof(T), x.part[k]);
}

ORRERY_DEVICE void unpack(const Packed<float>& x, float (&v)[run]) {
#pragma unroll
    for (int l = 0; l < run; ++l) v[l] = std::bit_cast<float>(x.part[l / 4].w[l % 4]);
}
ORRERY_DEVICE void unpack(const Packed<bf16>& x, float (&v)[run]) {
#pragma unroll
    for (int l = 0; l < run; ++l) {
        const std::uint32_t two = x.part[0].w[l / 2];
        v[l] = std::bit_cast<float>(l % 2 == 0 ? two << 16 : two & 0xffff0000u);
    }
}
ORRERY_DEVICE void unpack(const Packed<f16>& x, float (&v)[run]) {
#pragma unroll
    for (int l = 0; l < run; ++l) v[l] = widen(f16{static_cast<std::uint16_t>(x.part[0].w[l / 2] >> l % 2 * 16)});
}

/// Two adjacent elements in one word, the first one in its low half.
ORRERY_DEVICE std::uint32_t pair_of(float low, float high, bf16) {
#if defined(__CUDA_ARCH__)
    std::uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else
    return static_cast<std::uint32_t>(to_bf16(high).bits) << 16 | to_bf16(low).bits;
#endif
}
ORRERY_DEVICE std::uint32_t pair_of(float low, float high, f16) {
#if defined(__CUDA_ARCH__)
    std::uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else
    return static_cast<std::uint32_t>(to_f16(high).bits) << 16 | to_f16(low).bits;
#endif
}

ORRERY_DEVICE void pack(const float (&v)[run], Packed<float>& x) {
#pragma unroll
    for (int l = 0; l < run; ++l) x.part[l / 4].w[l % 4] = std::bit_cast<std::uint32_t>(v[l]);
}
template <class T>
ORRERY_DEVICE void pack(const float (&v)[run], Packed<T>& x) {
#pragma unroll
    for (int l = 0; l < run; l += 2) x.part[0].w[l / 2] = pair_of(v[l], v[l + 1], T{});
}

/// v + more, where v is rounded to T first: the same bits as two kernels, without fma.
template <class T>
ORRERY_DEVICE float add_rounded(float v, float more, T) {
    T rounded;
    narrow(v, rounded);
#if defined(__CUDA_ARCH__)
    return __fadd_rn(widen(rounded), more);
#else
    return widen(rounded) + more;
#endif
}

/// Loads the first `left` elements at p, zeros after them. wide: p is aligned to 16 bytes.
template <class T>
ORRERY_DEVICE void load_run(const T* p, i64 left, bool wide, float (&v)[run]) {
    if (wide && left >= run) {
        Packed<T> x;
        fetch(p, x);
        unpack(x, v);
    } else {
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = l < left ? widen(p[l]) : 0.0f;
    }
}

template <class T>
ORRERY_DEVICE void store_run(T* p, const float (&v)[run]) {
    Packed<T> x;
    pack(v, x);
    put(p, x);
}
template <class T>
ORRERY_DEVICE void store_run(T* p, i64 left, bool wide, const float (&v)[run]) {
    if (wide && left >= run) {
        store_run(p, v);
    } else {
#pragma unroll
        for (int l = 0; l < run; ++l) {
            if (l < left) narrow(v[l], p[l]);
        }
    }
}

inline bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
/// Whether all rows of `cols` elements at p begin at multiples of 16 bytes.
inline bool aligned_rows(const void* p, Type type, i64 cols) { return aligned(p) && cols * size_of(type) % 16 == 0; }

/// An operand of f32, bf16 or f16; the type is a run-time value, the same in all threads. Not for the hottest kernels.
struct AnyIn {
    const void* data = nullptr;
    Type type = Type::f32;
    bool wide = false;  ///< the requested runs begin at multiples of 16 bytes

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
            case Type::i8: return static_cast<V>(static_cast<const std::int8_t*>(data)[i]);
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
    /// Fetches the run at i, which must be aligned to 16 bytes, without a branch; a run of 16-bit elements fills the
    /// first half of x.
    ORRERY_DEVICE void fetch(i64 i, bool there, Packed<float>& x) const {
        const bool four = type == Type::f32;
        const auto* p = static_cast<const unsigned char*>(data) + i * (four ? 4 : 2);
        x.part[0] = load16(p, there);
        x.part[1] = load16(p + 16, there && four);
    }
    ORRERY_DEVICE void unpack(const Packed<float>& x, float (&v)[run]) const {
        switch (type) {
            case Type::bf16: return ORRERY_BLOCKS::unpack(Packed<bf16>{{x.part[0]}}, v);
            case Type::f16: return ORRERY_BLOCKS::unpack(Packed<f16>{{x.part[0]}}, v);
            default: return ORRERY_BLOCKS::unpack(x, v);
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
            case Type::i8: static_cast<std::int8_t*>(data)[i] = static_cast<std::int8_t>(v); return;
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

/// Calls f with a null pointer of the element type, which is f32, bf16 or f16.
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
