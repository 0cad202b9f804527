// Operands of any type as runs of floats: f32 is used in place, other types go through a small buffer.
#pragma once

#include <utility>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

/// Elements of a buffer on the stack: a few of them fit the first-level cache.
constexpr i64 tile = 1024;
/// Number of elements that pays for another thread.
constexpr i64 grain = 16384;

ORRERY_INLINE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

template <class T>
ORRERY_INLINE void widen(const T* x, i64 n, float* y) {
    i64 i = 0;
    for (; i + width <= n; i += width) store(load(x + i), y + i);
    for (; i < n; ++i) y[i] = to_float(x[i]);
}

template <class T>
ORRERY_INLINE void narrow(const float* x, i64 n, T* y) {
    i64 i = 0;
    for (; i + width <= n; i += width) store(load(x + i), y + i);
    for (T last[width]; i < n; i = n) {
        store(load(x + i, n - i), last);
        __builtin_memcpy(y + i, last, static_cast<size_t>(n - i) * sizeof(T));
    }
}

/// Elements at .. at+n-1 of f32, bf16, f16 or u8 as floats; `buffer` is used only if the type is not f32.
inline const float* fetch(In x, i64 at, i64 n, float* buffer) {
    switch (x.type) {
        case Type::f32: return x.as<float>() + at;
        case Type::bf16: widen(x.as<bf16>() + at, n, buffer); break;
        case Type::f16: widen(x.as<f16>() + at, n, buffer); break;
        case Type::u8:
            for (i64 i = 0; i < n; ++i) buffer[i] = x.as<std::uint8_t>()[at + i];
            break;
        default: __builtin_unreachable();
    }
    return buffer;
}

/// Where to write floats for elements at ..; call flush() afterwards.
ORRERY_INLINE float* target(Out y, i64 at, float* buffer) { return y.type == Type::f32 ? y.as<float>() + at : buffer; }

/// Writes the floats of target() to elements of f32, bf16, f16 or u8.
inline void flush(Out y, i64 at, i64 n, const float* buffer) {
    switch (y.type) {
        case Type::f32: return;
        case Type::bf16: return narrow(buffer, n, y.as<bf16>() + at);
        case Type::f16: return narrow(buffer, n, y.as<f16>() + at);
        case Type::u8:
            for (i64 i = 0; i < n; ++i) y.as<std::uint8_t>()[at + i] = static_cast<std::uint8_t>(buffer[i]);
            return;
        default: __builtin_unreachable();
    }
}

/// y[i] = f(x[i]...) over n floats.
template <class F, class... X>
ORRERY_INLINE void map(float* y, i64 n, F f, const X*... x) {
    i64 i = 0;
    for (; i + width <= n; i += width) store(f(load(x + i)...), y + i);
    if (i < n) store(f(load(x + i, n - i)...), y + i, n - i);
}

/// y[i] = f(x[i]...) over n elements of any float types, threaded.
template <class F, class... X>
ORRERY_INLINE void pointwise(Context& c, i64 n, Out y, F f, X... x) {
    parallel(c.threads(), n, grain, 64, [&](i64 begin, i64 end) {
        float buffers[sizeof...(X) + 1][tile];
        for (i64 at = begin; at < end; at += tile) {
            const i64 size = end - at < tile ? end - at : tile;
            float* to = target(y, at, buffers[sizeof...(X)]);
            [&]<size_t... I>(std::index_sequence<I...>) { map(to, size, f, fetch(x, at, size, buffers[I])...); }
            (std::index_sequence_for<X...>());
            flush(y, at, size, to);
        }
    });
}

/// A float scalar operand.
ORRERY_INLINE float scalar(In x) {
    float value;
    return *fetch(x, 0, 1, &value);
}

/// The table's matmul, and the bytes of scratch that it requests, for kernels that contain matrix products.
void matmul(Context&, const Matmul&, In a, In b, In bias, Out y);
i64 matmul_scratch(const Context&, const Matmul&, In a, In b, In bias, Out y);
/// Rows begin .. end-1 of y, as matmul makes them, on this thread alone; s.batch is 1. scratch: matmul_rows_floats of a
/// product that is at least as large.
void matmul_rows(Products, const Matmul& s, In a, In b, Out y, i64 begin, i64 end, float* scratch);
i64 matmul_rows_floats(Products, const Matmul& s, In a, In b, Out y);

/// Each file has one function, which fills its members of the table.
void add_elementwise(Kernels&);
void add_broadcast(Kernels&);
void add_random(Kernels&);
void add_matmul(Kernels&);
void add_grouped_matmul(Kernels&);
void add_reduce(Kernels&);
void add_norm(Kernels&);
void add_attention(Kernels&);
void add_tokens(Kernels&);
void add_index(Kernels&);
void add_dispatch(Kernels&);
void add_codes(Kernels&);
void add_update(Kernels&);
void add_layout(Kernels&);

}  // namespace orrery::kernels::cpu::ORRERY_ISA
