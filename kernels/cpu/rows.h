// Loops over one row of floats.
#pragma once

#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

/// Sums f(x[i]...) over n floats in four chains; f must be 0 where all its arguments are 0.
template <class F, class... X>
ORRERY_INLINE float sum_map(i64 n, F f, const X*... x) {
    Vec a(0.0f), b(0.0f), c(0.0f), d(0.0f);
    i64 i = 0;
    for (; i + 4 * width <= n; i += 4 * width) {
        a += f(load(x + i)...);
        b += f(load(x + i + width)...);
        c += f(load(x + i + 2 * width)...);
        d += f(load(x + i + 3 * width)...);
    }
    for (; i + width <= n; i += width) a += f(load(x + i)...);
    if (i < n) b += f(load(x + i, n - i)...);
    return sum((a + b) + (c + d));
}

/// The largest of n >= 0 floats and `first`; NaN if one of them is.
ORRERY_INLINE float row_max(const float* x, i64 n, float first) {
    Vec a(first), b(first);
    Ints numbers = (a == a).v;  // lanes without a NaN so far: max loses a NaN when the next number comes
    i64 i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
        const Vec u = load(x + i), v = load(x + i + width);
        a = max(a, u);
        b = max(b, v);
        numbers &= (u == u).v & (v == v).v;
    }
    for (; i < n; i += width) {
        const Vec u = i + width <= n ? load(x + i) : load(x + i, n - i, first);
        a = max(a, u);
        numbers &= (u == u).v;
    }
    return max_of(select(Mask{numbers}, max(a, b), Vec(__builtin_nanf(""))));
}

/// y = exp(x - shift) over n floats; returns their sum. x may be y.
ORRERY_INLINE float exp_sum(const float* x, float* y, i64 n, float shift) {
    const Vec s(shift);
    Vec a(0.0f), b(0.0f);
    i64 i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
        const Vec u = exp(load(x + i) - s), v = exp(load(x + i + width) - s);
        store(u, y + i);
        store(v, y + i + width);
        a += u;
        b += v;
    }
    float total = sum(a + b);
    for (; i < n; i += width) {
        const i64 left = n - i < width ? n - i : width;
        float last[width];
        store(exp(load(x + i, left) - s), last);
        for (i64 j = 0; j < left; ++j) total += last[j];
        store(load(last), y + i, left);
    }
    return total;
}

ORRERY_INLINE void zero(float* y, i64 n) {
    if (n > 0) __builtin_memset(y, 0, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
