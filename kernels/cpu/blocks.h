// f32 products in packed blocks: a block of each operand is copied to strips in the order in which it is read, and a
// strip of a times a strip of b stays in registers (Goto and van de Geijn, Anatomy of high-performance matrix
// multiplication, ACM TOMS 34, 2008). 16-bit operands are widened as they are packed.
#pragma once

#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

constexpr i64 strip_a = width == 16 ? 14 : 6;  ///< rows of c in registers
constexpr i64 strip_b = 2 * width;             ///< columns of c in registers
// Sizes of a packed block: b's strips fit the first-level cache, a's block the second, b's the third. They are the same
// for all instruction sets, so that all machines reserve the same scratch: multiples of 6, 14 and 32.
constexpr i64 pack_rows = 210, pack_cols = 768, pack_depth = 256;

/// An operand op(x): one dim is cut in strips, the other is contracted. Element (i, l) is x[i + l stride] when `along`
/// is set (strips along the rows of the stored matrix), else x[i stride + l].
struct Packed {
    In x;
    i64 stride;
    bool along;

    Packed from(i64 i, i64 l) const {
        const i64 at = along ? i + l * stride : i * stride + l;
        return {{x.as<char>() + at * size_of(x.type), x.type}, stride, along};
    }
};

ORRERY_INLINE i64 rounded(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }
/// Size of the parts when n is cut in equal parts of at most `most`, multiples of `unit`.
ORRERY_INLINE i64 part_of(i64 n, i64 most, i64 unit) {
    const i64 parts = (n + most - 1) / most;
    return parts <= 1 ? most : rounded((n + parts - 1) / parts, unit);
}

/// Floats of scratch for a product of at most [m,k] x [k,n].
inline i64 pack_floats(i64 m, i64 n, i64 k) {
    const i64 rows = rounded(m, 42), cols = rounded(n, 32);
    return ((rows < pack_rows ? rows : pack_rows) + (cols < pack_cols ? cols : pack_cols)) *
           (k < pack_depth ? k : pack_depth);
}

/// Copies n floats of any type; reads nothing beyond them.
template <i64 n, class T>
ORRERY_INLINE void copy_run(const T* from, float* to) {
    constexpr i64 whole = n / width * width;
    for (i64 i = 0; i < whole; i += width) store(load(from + i), to + i);
    if constexpr (whole < n) {
        T last[width] = {};
        float lanes[width];
        __builtin_memcpy(last, from + whole, (n - whole) * sizeof(T));
        store(load(last), lanes);
        __builtin_memcpy(to + whole, lanes, (n - whole) * sizeof(float));
    }
}

template <i64 strip, class T>
ORRERY_INLINE void pack_along(const T* x, i64 stride, i64 count, i64 depth, float* to) {
    for (i64 i = 0; i < count; i += strip, to += strip * depth) {
        const i64 n = count - i < strip ? count - i : strip;
        for (i64 l = 0; l < depth; ++l) {
            const T* from = x + l * stride + i;
            float* y = to + l * strip;
            if (n == strip) {
                copy_run<strip>(from, y);
                continue;
            }
            if constexpr (sizeof(T) == sizeof(float))
                __builtin_memcpy(y, from, static_cast<size_t>(n) * sizeof(float));
            else
                widen(from, n, y);
            for (i64 r = n; r < strip; ++r) y[r] = 0;
        }
    }
}

/// y[l strip + i] = x[i stride + l] for 4 by 4 floats.
template <i64 strip>
ORRERY_INLINE void turn(const float* x, i64 stride, float* y) {
    typedef float Four __attribute__((vector_size(16)));
    typedef std::int32_t Lanes __attribute__((vector_size(16)));
    Four row[4];
    for (int i = 0; i < 4; ++i) __builtin_memcpy(&row[i], x + i * stride, 16);
    const Four low0 = __builtin_shuffle(row[0], row[1], Lanes{0, 4, 1, 5}),
               high0 = __builtin_shuffle(row[0], row[1], Lanes{2, 6, 3, 7}),
               low1 = __builtin_shuffle(row[2], row[3], Lanes{0, 4, 1, 5}),
               high1 = __builtin_shuffle(row[2], row[3], Lanes{2, 6, 3, 7});
    const Four col[4] = {
        __builtin_shuffle(low0, low1, Lanes{0, 1, 4, 5}), __builtin_shuffle(low0, low1, Lanes{2, 3, 6, 7}),
        __builtin_shuffle(high0, high1, Lanes{0, 1, 4, 5}), __builtin_shuffle(high0, high1, Lanes{2, 3, 6, 7})};
    for (int l = 0; l < 4; ++l) __builtin_memcpy(y + l * strip, &col[l], 16);
}

/// Packs one strip of `n` rows of `depth` floats from x.
template <i64 strip>
ORRERY_INLINE void turn_strip(const float* x, i64 stride, i64 n, i64 depth, float* to) {
    i64 i = 0;
    for (; i + 4 <= n; i += 4) {
        i64 l = 0;
        for (; l + 4 <= depth; l += 4) turn<strip>(x + i * stride + l, stride, to + l * strip + i);
        for (; l < depth; ++l)
            for (i64 r = i; r < i + 4; ++r) to[l * strip + r] = x[r * stride + l];
    }
    for (; i < strip; ++i)
        for (i64 l = 0; l < depth; ++l) to[l * strip + i] = i < n ? x[i * stride + l] : 0;
}

template <i64 strip>
ORRERY_INLINE void pack_across(In x, i64 stride, i64 count, i64 depth, float* to) {
    constexpr i64 run = 64;
    for (i64 i = 0; i < count; i += strip, to += strip * depth) {
        const i64 n = count - i < strip ? count - i : strip;
        if (x.type == Type::f32) {
            turn_strip<strip>(x.as<float>() + i * stride, stride, n, depth, to);
            continue;
        }
        float widened[strip * run];
        for (i64 l = 0; l < depth; l += run) {
            const i64 size = depth - l < run ? depth - l : run;
            for (i64 r = 0; r < n; ++r) fetch(x, (i + r) * stride + l, size, widened + r * run);
            turn_strip<strip>(widened, run, n, size, to + l * strip);
        }
    }
}

/// Packs strips of `count` by `depth` elements of p; zeros fill up the last one.
template <i64 strip>
inline void pack(const Packed& p, i64 count, i64 depth, float* to) {
    if (!p.along) return pack_across<strip>(p.x, p.stride, count, depth, to);
    if (p.x.type == Type::bf16) return pack_along<strip>(p.x.as<bf16>(), p.stride, count, depth, to);
    if (p.x.type == Type::f16) return pack_along<strip>(p.x.as<f16>(), p.stride, count, depth, to);
    pack_along<strip>(p.x.as<float>(), p.stride, count, depth, to);
}

/// c (+)= a strip of a times a strip of b; only the first rows and cols are stored.
ORRERY_INLINE void strips(i64 depth, const float* a, const float* b, float* c, i64 ldc, i64 rows, i64 cols, bool add) {
    Vec sum[strip_a][2];
#pragma GCC unroll 16
    for (int i = 0; i < strip_a; ++i) sum[i][0] = sum[i][1] = Vec(0.0f);
    for (i64 l = 0; l < depth; ++l) {
        const Vec b0 = load(b + l * strip_b), b1 = load(b + l * strip_b + width);
#pragma GCC unroll 16
        for (int i = 0; i < strip_a; ++i) {
            const Vec ai(a[l * strip_a + i]);
            sum[i][0] = fma(ai, b0, sum[i][0]);
            sum[i][1] = fma(ai, b1, sum[i][1]);
        }
    }
    float edge[strip_a * strip_b];
    const bool whole = rows == strip_a && cols == strip_b;
    float* const to = whole ? c : edge;
    const i64 ld = whole ? ldc : strip_b;
#pragma GCC unroll 16
    for (int i = 0; i < strip_a; ++i) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            float* const y = to + i * ld + j * width;
            store(whole && add ? load(y) + sum[i][j] : sum[i][j], y);
        }
    }
    if (whole) return;
    for (i64 i = 0; i < rows; ++i)
        for (i64 j = 0; j < cols; ++j) {
            const float made = edge[i * strip_b + j];
            c[i * ldc + j] = add ? c[i * ldc + j] + made : made;
        }
}

/// c [m,n] (+)= a b over the contracted elements 0 .. k-1, on this thread. scratch: pack_floats.
inline void blocks_gemm(const Packed& a, const Packed& b, i64 m, i64 n, i64 k, bool add, float* c, i64 ldc,
                        float* scratch) {
    if (k == 0) {
        for (i64 i = 0; i < m && !add; ++i)
            for (i64 j = 0; j < n; ++j) c[i * ldc + j] = 0;
        return;
    }
    const i64 step_m = part_of(m, pack_rows, strip_a), step_n = part_of(n, pack_cols, strip_b),
              step_k = part_of(k, pack_depth, 4);
    float* const packed_b = scratch;
    float* const packed_a = scratch + rounded(step_n < n ? step_n : n, strip_b) * (step_k < k ? step_k : k);
    for (i64 jn = 0; jn < n; jn += step_n) {
        const i64 cols = n - jn < step_n ? n - jn : step_n;
        for (i64 l = 0; l < k; l += step_k) {
            const i64 depth = k - l < step_k ? k - l : step_k;
            pack<strip_b>(b.from(jn, l), cols, depth, packed_b);
            for (i64 im = 0; im < m; im += step_m) {
                const i64 rows = m - im < step_m ? m - im : step_m;
                pack<strip_a>(a.from(im, l), rows, depth, packed_a);
                for (i64 j = 0; j < cols; j += strip_b)
                    for (i64 i = 0; i < rows; i += strip_a)
                        strips(depth, packed_a + i * depth, packed_b + j * depth, c + (im + i) * ldc + jn + j, ldc,
                               rows - i < strip_a ? rows - i : strip_a, cols - j < strip_b ? cols - j : strip_b,
                               add || l > 0);
            }
        }
    }
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
