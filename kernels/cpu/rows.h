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

/// The largest of n >= 0 floats and `first`; a NaN wins.
ORRERY_INLINE float row_max(const float* x, i64 n, float first) {
    Vec a(first), b(first);
    i64 i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
        a = max(a, load(x + i));
        b = max(b, load(x + i + width));
    }
    for (; i + width <= n; i += width) a = max(a, load(x + i));
    if (i < n) b = max(b, load(x + i, n - i, first));
    a = select(a == a, max(a, b), a);
    return max_of(a);
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
