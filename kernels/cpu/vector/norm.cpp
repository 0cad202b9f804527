// Softmax, norms and merges of attention: each row is read from memory once and processed in cache.
#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// Number of rows that pays for another thread.
ORRERY_INLINE i64 row_grain(i64 cols) { return cols >= grain ? 1 : grain / (cols > 0 ? cols : 1); }

/// Floats of one row, padded to a cache line.
ORRERY_INLINE i64 padded(i64 cols) { return (cols + 15) / 16 * 16; }

/// Runs f(part, begin, end, scratch of this part) over the rows.
template <class F>
ORRERY_INLINE void by_rows(Context& c, i64 rows, i64 cols, i64 floats, F f) {
    const int parts = parts_of(c.threads(), rows, row_grain(cols));
    float* scratch = static_cast<float*>(c.scratch((floats * parts + 16) * 4));
    team(parts,
         [&](int part) { f(part, cut(rows, parts, part, 1), cut(rows, parts, part + 1, 1), scratch + part * floats); });
}

void softmax(Context& c, In x, Out y, i64 rows, i64 cols) {
    by_rows(c, rows, cols, padded(cols), [&](int, i64 begin, i64 end, float* buffer) {
        for (i64 r = begin; r < end; ++r) {
            const float* row = fetch(x, r * cols, cols, buffer);
            float* to = target(y, r * cols, buffer);
            const float total = exp_sum(row, to, cols, row_max(row, cols, -__builtin_inff()));
            map(
                to, cols, [s = Vec(1 / total)](Vec v) { return v * s; }, to);
            flush(y, r * cols, cols, to);
        }
    });
}

void softmax_grad(Context& c, In y, In dy, Out dx, i64 rows, i64 cols) {
    by_rows(c, rows, cols, 2 * padded(cols), [&](int, i64 begin, i64 end, float* buffer) {
        for (i64 r = begin; r < end; ++r) {
            const float* p = fetch(y, r * cols, cols, buffer);
            const float* d = fetch(dy, r * cols, cols, buffer + padded(cols));
            const float dot = sum_map(
                cols, [](Vec a, Vec b) { return a * b; }, p, d);
            float* to = target(dx, r * cols, buffer);
            map(
                to, cols, [m = Vec(dot)](Vec a, Vec b) { return a * (b - m); }, p, d);
            flush(dx, r * cols, cols, to);
        }
    });
}

/// The row of x at `at`, or of x + residual as rounded in `to`.
ORRERY_INLINE const float* summed(In x, In residual, Out to, i64 at, i64 cols, float* buffer, float* other) {
    const float* row = fetch(x, at, cols, buffer);
    if (residual.data == nullptr) return row;
    float* both = target(to, at, buffer);
    map(
        both, cols, [](Vec a, Vec b) { return a + b; }, row, fetch(residual, at, cols, other));
    flush(to, at, cols, both);
    return fetch({to.data, to.type}, at, cols, buffer);
}

/// The row of dx at `at` = slope(x, dy, gain), plus dsum if present. The bits are those of two kernels.
template <class F>
ORRERY_INLINE void put_slope(Out dx, In dsum, i64 at, i64 cols, float* buffer, float* other, F slope, const float* x,
                             const float* dy, const float* gain) {
    float* to = target(dx, at, buffer);
    if (dsum.data == nullptr) {
        map(to, cols, slope, x, dy, gain);
        return flush(dx, at, cols, to);
    }
    const bool wide = dx.type == Type::f32;
    float* own = wide ? other : to;  // dx may be dsum
    map(own, cols, slope, x, dy, gain);
    const float* more = fetch(dsum, at, cols, other);
    if (!wide) {
        flush(dx, at, cols, own);
        fetch({dx.data, dx.type}, at, cols, own);
    }
    map(
        to, cols, [](Vec a, Vec b) { return a + b; }, own, more);
    flush(dx, at, cols, to);
}

void layernorm(Context& c, In x, In gain, In bias, In residual, Out y, Out mean, Out rstd, Out sum, i64 rows, i64 cols,
               double eps) {
    const i64 step = padded(cols);
    by_rows(c, rows, cols, 4 * step, [&](int, i64 begin, i64 end, float* buffer) {
        const float* g = fetch(gain, 0, cols, buffer + step);
        const float* b = fetch(bias, 0, cols, buffer + 2 * step);
        const auto n = static_cast<float>(cols);
        for (i64 r = begin; r < end; ++r) {
            const float* row = summed(x, residual, sum, r * cols, cols, buffer, buffer + 3 * step);
            const float m = sum_map(
                                cols, [](Vec v) { return v; }, row) /
                            n;
            // E[x^2] - m^2 would lose all precision when the mean is large.
            float square = 0;
            const Vec mv(m);
            const i64 whole = cols / width * width;
            square = sum_map(
                whole, [mv](Vec v) { return (v - mv) * (v - mv); }, row);
            for (i64 i = whole; i < cols; ++i) square += (row[i] - m) * (row[i] - m);
            const float s = 1 / __builtin_sqrtf(square / n + static_cast<float>(eps));
            float* to = target(y, r * cols, buffer);
            map(
                to, cols, [mv, sv = Vec(s)](Vec v, Vec gv, Vec bv) { return (v - mv) * sv * gv + bv; }, row, g, b);
            flush(y, r * cols, cols, to);
            mean.as<float>()[r] = m;
            rstd.as<float>()[r] = s;
        }
    });
}

/// Adds the column sums of the parts, in their order.
void join(Out y, const float* sums, i64 distance, int parts, i64 cols, bool accumulate) {
    float* to = y.as<float>();
    for (int part = 0; part < parts; ++part) {
        const float* from = sums + part * distance;
        if (part == 0 && !accumulate)
            __builtin_memcpy(to, from, static_cast<size_t>(cols) * 4);
        else
            map(
                to, cols, [](Vec a, Vec b) { return a + b; }, to, from);
    }
}

void layernorm_grad(Context& c, In x, In gain, In mean, In rstd, In dy, In dsum, Out dx, Out dgain, Out dbias, i64 rows,
                    i64 cols, bool accumulate) {
    const i64 step = padded(cols), floats = 6 * step;
    const int parts = parts_of(c.threads(), rows, row_grain(cols));
    float* scratch = static_cast<float*>(c.scratch(floats * parts * 4));
    team(parts, [&](int part) {
        float *dg = scratch + part * floats, *db = dg + step, *xb = dg + 2 * step, *yb = dg + 3 * step;
        const float* g = fetch(gain, 0, cols, dg + 4 * step);
        zero(dg, cols);
        zero(db, cols);
        const float inverse = 1 / static_cast<float>(cols);
        const i64 end = cut(rows, parts, part + 1, 1);
        for (i64 r = cut(rows, parts, part, 1); r < end; ++r) {
            const float* row = fetch(x, r * cols, cols, xb);
            const float* d = fetch(dy, r * cols, cols, yb);
            const Vec m(mean.as<float>()[r]), s(rstd.as<float>()[r]);
            Vec total(0.0f), dot(0.0f);
            const auto collect = [&](Vec xv, Vec dv, Vec gv, Vec& a, Vec& b) {
                const Vec hat = (xv - m) * s, dhat = dv * gv;
                a = fma(dv, hat, a);
                b += dv;
                total += dhat;
                dot = fma(dhat, hat, dot);
            };
            i64 i = 0;
            for (; i + width <= cols; i += width) {
                Vec a = load(dg + i), b = load(db + i);
                collect(load(row + i), load(d + i), load(g + i), a, b);
                store(a, dg + i);
                store(b, db + i);
            }
            if (const i64 left = cols - i; left > 0) {  // dy is 0 beyond the row, and so are its products
                Vec a = load(dg + i, left), b = load(db + i, left);
                collect(load(row + i, left), load(d + i, left), load(g + i, left), a, b);
                store(a, dg + i, left);
                store(b, db + i, left);
            }
            const Vec t(sum(total) * inverse), u(sum(dot) * inverse);
            const auto slope = [=](Vec xv, Vec dv, Vec gv) { return s * (dv * gv - t - (xv - m) * s * u); };
            put_slope(dx, dsum, r * cols, cols, xb, dg + 5 * step, slope, row, d, g);
        }
    });
    join(dgain, scratch, floats, parts, cols, accumulate);
    join(dbias, scratch + step, floats, parts, cols, accumulate);
}

void rmsnorm(Context& c, In x, In gain, In residual, Out y, Out rstd, Out sum, i64 rows, i64 cols, double eps) {
    const i64 step = padded(cols);
    by_rows(c, rows, cols, 3 * step, [&](int, i64 begin, i64 end, float* buffer) {
        const float* g = fetch(gain, 0, cols, buffer + step);
        for (i64 r = begin; r < end; ++r) {
            const float* row = summed(x, residual, sum, r * cols, cols, buffer, buffer + 2 * step);
            const float square = sum_map(
                cols, [](Vec v) { return v * v; }, row);
            const float s = 1 / __builtin_sqrtf(square / static_cast<float>(cols) + static_cast<float>(eps));
            float* to = target(y, r * cols, buffer);
            map(
                to, cols, [sv = Vec(s)](Vec v, Vec gv) { return v * sv * gv; }, row, g);
            flush(y, r * cols, cols, to);
            rstd.as<float>()[r] = s;
        }
    });
}

void rmsnorm_grad(Context& c, In x, In gain, In rstd, In dy, In dsum, Out dx, Out dgain, i64 rows, i64 cols,
                  bool accumulate) {
    const i64 step = padded(cols), floats = 5 * step;
    const int parts = parts_of(c.threads(), rows, row_grain(cols));
    float* scratch = static_cast<float*>(c.scratch(floats * parts * 4));
    team(parts, [&](int part) {
        float *dg = scratch + part * floats, *xb = dg + step, *yb = dg + 2 * step;
        const float* g = fetch(gain, 0, cols, dg + 3 * step);
        zero(dg, cols);
        const i64 end = cut(rows, parts, part + 1, 1);
        for (i64 r = cut(rows, parts, part, 1); r < end; ++r) {
            const float* row = fetch(x, r * cols, cols, xb);
            const float* d = fetch(dy, r * cols, cols, yb);
            const Vec s(rstd.as<float>()[r]);
            const float dot = sum_map(
                cols, [s](Vec xv, Vec dv, Vec gv) { return dv * gv * (xv * s); }, row, d, g);
            map(
                dg, cols, [s](Vec a, Vec xv, Vec dv) { return fma(dv, xv * s, a); }, dg, row, d);
            const auto slope = [s, u = Vec(dot / static_cast<float>(cols))](Vec xv, Vec dv, Vec gv) {
                return s * (dv * gv - xv * s * u);
            };
            put_slope(dx, dsum, r * cols, cols, xb, dg + 4 * step, slope, row, d, g);
        }
    });
    join(dgain, scratch, floats, parts, cols, accumulate);
}

void merge(Context& c, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, Out o, Out lse) {
    const i64 n = s.dim, step = padded(n);
    by_rows(c, s.rows(), n, 2 * step, [&](int, i64 begin, i64 end, float* buffer) {
        for (i64 r = begin; r < end; ++r) {
            const i64 at = statistic_of(s, r);
            const auto share = merge_shares(lse_a.as<float>()[at], lse_b.as<float>()[at]);
            const float *a = fetch(o_a, r * n, n, buffer), *b = fetch(o_b, r * n, n, buffer + step);
            const auto both = [p = Vec(share.a), q = Vec(share.b)](Vec u, Vec v) { return p * u + q * v; };
            map(o.as<float>() + r * n, n, both, a, b);
            lse.as<float>()[at] = share.lse;
        }
    });
}

void merge_grad(Context& c, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, In d_o, In d_lse, Out do_a, Out dlse_a,
                Out do_b, Out dlse_b) {
    const i64 n = s.dim, step = padded(n);
    by_rows(c, s.rows(), n, 4 * step, [&](int, i64 begin, i64 end, float* buffer) {
        for (i64 r = begin; r < end; ++r) {
            const i64 at = statistic_of(s, r);
            const auto share = merge_shares(lse_a.as<float>()[at], lse_b.as<float>()[at]);
            const float *a = fetch(o_a, r * n, n, buffer), *b = fetch(o_b, r * n, n, buffer + step);
            const float* d = fetch(d_o, r * n, n, buffer + 2 * step);
            const float dot = sum_map(
                n, [](Vec u, Vec v, Vec w) { return w * (u - v); }, a, b, d);
            const auto put = [&](Out y, float p) {
                float* to = target(y, r * n, buffer + 3 * step);
                map(
                    to, n, [p = Vec(p)](Vec v) { return p * v; }, d);
                flush(y, r * n, n, to);
            };
            put(do_a, share.a);
            put(do_b, share.b);
            const float dl = d_lse.data == nullptr ? 0.0f : d_lse.as<float>()[at];
            dlse_a.as<float>()[at] = share.a * (dl + share.b * dot);
            dlse_b.as<float>()[at] = share.b * (dl - share.a * dot);
        }
    });
}

}  // namespace

void add_norm(Kernels& k) {
    k.softmax = softmax;
    k.softmax_grad = softmax_grad;
    k.merge = merge;
    k.merge_grad = merge_grad;
    k.layernorm = layernorm;
    k.layernorm_grad = layernorm_grad;
    k.rmsnorm = rmsnorm;
    k.rmsnorm_grad = rmsnorm_grad;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
