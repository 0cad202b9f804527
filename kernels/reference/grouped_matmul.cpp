#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

/// Calls f(row, expert) for each row of x that counts.
template <class F>
void for_rows(const GroupedMatmul& s, const std::int32_t* counts, F f) {
    for (i64 g = 0; g < s.groups; ++g) {
        for (i64 e = 0; e < s.experts; ++e) {
            const ExpertRows rows = expert_rows(s, counts, g, e);
            for (i64 r = 0; r < rows.count; ++r) f(rows.first + r, e);
        }
    }
}

void grouped_matmul(Context&, const GroupedMatmul& s, In x, In w, const std::int32_t* counts, Out y) {
    const Values rows = read(x, s.rows() * s.k), weights = read(w, s.experts * s.k * s.n);
    Values made(static_cast<size_t>(s.rows() * s.n), 0.0);
    for_rows(s, counts, [&](i64 row, i64 expert) {
        const double* we = weights.data() + expert * s.k * s.n;
        for (i64 l = 0; l < s.k; ++l) {
            for (i64 j = 0; j < s.n; ++j)
                made[row * s.n + j] += rows[row * s.k + l] * (s.trans_b ? we[j * s.k + l] : we[l * s.n + j]);
        }
    });
    write(y, made);
}

void grouped_matmul_dw(Context&, const GroupedMatmul& s, In x, In dy, const std::int32_t* counts, Out dw) {
    const Values rows = read(x, s.rows() * s.k), slopes = read(dy, s.rows() * s.n);
    Values made(static_cast<size_t>(s.experts * s.k * s.n), 0.0);
    for_rows(s, counts, [&](i64 row, i64 expert) {
        for (i64 l = 0; l < s.k; ++l) {
            for (i64 j = 0; j < s.n; ++j)
                made[(expert * s.k + l) * s.n + j] += rows[row * s.k + l] * slopes[row * s.n + j];
        }
    });
    write(dw, made, s.accumulate);
}

}  // namespace

void add_grouped_matmul(Kernels& k) {
    k.grouped_matmul = grouped_matmul;
    k.grouped_matmul_dw = grouped_matmul_dw;
}

}  // namespace orrery::kernels::reference
