// Small products of matrices in cache, without packing: for the blocks of attention.
#pragma once

#include "kernels/cpu/vec.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

constexpr i64 micro_rows = 6;          ///< rows of c in registers
constexpr i64 micro_cols = 2 * width;  ///< columns of c in registers; n is rounded up to a multiple

/// a(i, l) = at[i * row + l * col]: a matrix or its transpose.
struct Strided {
    const float* at;
    i64 row, col;
};

/// The columns of b, and the range of the contracted dim, that the rows first .. last of c need.
struct Extent {
    i64 first_col, end_col, begin, end;
};

template <int rows>
ORRERY_INLINE void micro(i64 begin, i64 end, Strided a, const float* b, i64 ldb, float* c, i64 ldc, Vec scale,
                         bool add) {
    Vec sum[rows][2];
    for (int i = 0; i < rows; ++i) sum[i][0] = sum[i][1] = Vec(0.0f);
    for (i64 l = begin; l < end; ++l) {
        const Vec b0 = load(b + l * ldb), b1 = load(b + l * ldb + width);
        for (int i = 0; i < rows; ++i) {
            const Vec ai(a.at[i * a.row + l * a.col]);
            sum[i][0] = fma(ai, b0, sum[i][0]);
            sum[i][1] = fma(ai, b1, sum[i][1]);
        }
    }
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < 2; ++j) {
            float* to = c + i * ldc + j * width;
            store(add ? fma(scale, sum[i][j], load(to)) : scale * sum[i][j], to);
        }
    }
}

/// c [m, n] = or += scale * a [m, k] b [k, n]. extent(first, last) of each six rows says which part is needed. b and c
/// must have room for n rounded up to micro_cols.
template <class F>
ORRERY_INLINE void small_gemm(i64 m, i64 n, Strided a, const float* b, i64 ldb, float* c, i64 ldc, float scale,
                              bool add, F extent) {
    const Vec s(scale);
    for (i64 j = 0; j < n; j += micro_cols) {
        for (i64 i = 0; i < m; i += micro_rows) {
            const i64 rows = m - i < micro_rows ? m - i : micro_rows;
            const Extent e = extent(i, i + rows - 1);
            if (j >= e.end_col || j + micro_cols <= e.first_col) continue;
            const Strided at{a.at + i * a.row, a.row, a.col};
            float* to = c + i * ldc + j;
            switch (rows) {
                case 1: micro<1>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
                case 2: micro<2>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
                case 3: micro<3>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
                case 4: micro<4>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
                case 5: micro<5>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
                default: micro<6>(e.begin, e.end, at, b + j, ldb, to, ldc, s, add); break;
            }
        }
    }
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
