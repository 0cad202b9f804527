#include <algorithm>
#include <cmath>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

void softmax(Context&, In x, Out y, i64 rows, i64 cols) {
    Values v = read(x, rows * cols);
    for (i64 r = 0; r < rows; ++r) {
        double* row = v.data() + r * cols;
        const double top = *std::max_element(row, row + cols);
        double sum = 0;
        for (i64 c = 0; c < cols; ++c) sum += row[c] = std::exp(row[c] - top);
        for (i64 c = 0; c < cols; ++c) row[c] /= sum;
    }
    write(y, v);
}

void softmax_grad(Context&, In y, In dy, Out dx, i64 rows, i64 cols) {
    const Values p = read(y, rows * cols);
    Values d = read(dy, rows * cols);
    for (i64 r = 0; r < rows; ++r) {
        double dot = 0;
        for (i64 i = r * cols; i < (r + 1) * cols; ++i) dot += p[i] * d[i];
        for (i64 i = r * cols; i < (r + 1) * cols; ++i) d[i] = p[i] * (d[i] - dot);
    }
    write(dx, d);
}

/// x, or x + residual as rounded in sum.
Values summed(In x, In residual, Out sum, i64 n) {
    Values v = read(x, n);
    if (residual.data == nullptr) return v;
    const Values r = read(residual, n);
    for (i64 i = 0; i < n; ++i) v[i] += r[i];
    write(sum, v);
    return read({sum.data, sum.type}, n);
}

/// dx, or dx + dsum with dx rounded first, like two ops.
void write_sum(Out dx, const Values& d, In dsum) {
    const auto n = static_cast<i64>(d.size());
    const Values more = dsum.data != nullptr ? read(dsum, n) : Values();
    write(dx, d);
    if (dsum.data == nullptr) return;
    Values total = read({dx.data, dx.type}, n);
    for (i64 i = 0; i < n; ++i) total[i] += more[i];
    write(dx, total);
}

void layernorm(Context&, In x, In gain, In bias, In residual, Out y, Out mean, Out rstd, Out sum, i64 rows, i64 cols,
               double eps) {
    Values v = summed(x, residual, sum, rows * cols), means(static_cast<size_t>(rows)),
           rstds(static_cast<size_t>(rows));
    const Values g = read(gain, cols), b = read(bias, cols);
    const auto n = static_cast<double>(cols);
    for (i64 r = 0; r < rows; ++r) {
        double* row = v.data() + r * cols;
        double total = 0, square = 0;
        for (i64 c = 0; c < cols; ++c) total += row[c];
        means[r] = total / n;
        for (i64 c = 0; c < cols; ++c) square += (row[c] - means[r]) * (row[c] - means[r]);
        rstds[r] = 1 / std::sqrt(square / n + eps);
        for (i64 c = 0; c < cols; ++c) row[c] = (row[c] - means[r]) * rstds[r] * g[c] + b[c];
    }
    write(y, v);
    write(mean, means);
    write(rstd, rstds);
}

void layernorm_grad(Context&, In x, In gain, In mean, In rstd, In dy, In dsum, Out dx, Out dgain, Out dbias, i64 rows,
                    i64 cols, bool accumulate) {
    const Values v = read(x, rows * cols), g = read(gain, cols), means = read(mean, rows), rstds = read(rstd, rows);
    Values d = read(dy, rows * cols), dg(static_cast<size_t>(cols)), db(static_cast<size_t>(cols));
    const auto n = static_cast<double>(cols);
    for (i64 r = 0; r < rows; ++r) {
        double sum = 0, dot = 0;
        for (i64 c = 0; c < cols; ++c) {
            const double hat = (v[r * cols + c] - means[r]) * rstds[r], dhat = d[r * cols + c] * g[c];
            dg[c] += d[r * cols + c] * hat;
            db[c] += d[r * cols + c];
            sum += dhat;
            dot += dhat * hat;
        }
        for (i64 c = 0; c < cols; ++c) {
            const double hat = (v[r * cols + c] - means[r]) * rstds[r], dhat = d[r * cols + c] * g[c];
            d[r * cols + c] = rstds[r] * (dhat - sum / n - hat * dot / n);
        }
    }
    write_sum(dx, d, dsum);
    write(dgain, dg, accumulate);
    write(dbias, db, accumulate);
}

void rmsnorm(Context&, In x, In gain, In residual, Out y, Out rstd, Out sum, i64 rows, i64 cols, double eps) {
    Values v = summed(x, residual, sum, rows * cols), rstds(static_cast<size_t>(rows));
    const Values g = read(gain, cols);
    for (i64 r = 0; r < rows; ++r) {
        double* row = v.data() + r * cols;
        double square = 0;
        for (i64 c = 0; c < cols; ++c) square += row[c] * row[c];
        rstds[r] = 1 / std::sqrt(square / static_cast<double>(cols) + eps);
        for (i64 c = 0; c < cols; ++c) row[c] *= rstds[r] * g[c];
    }
    write(y, v);
    write(rstd, rstds);
}

void rmsnorm_grad(Context&, In x, In gain, In rstd, In dy, In dsum, Out dx, Out dgain, i64 rows, i64 cols,
                  bool accumulate) {
    const Values v = read(x, rows * cols), g = read(gain, cols), rstds = read(rstd, rows);
    Values d = read(dy, rows * cols), dg(static_cast<size_t>(cols));
    for (i64 r = 0; r < rows; ++r) {
        double dot = 0;
        for (i64 c = 0; c < cols; ++c) {
            const double hat = v[r * cols + c] * rstds[r];
            dg[c] += d[r * cols + c] * hat;
            dot += d[r * cols + c] * g[c] * hat;
        }
        for (i64 c = 0; c < cols; ++c) {
            const double hat = v[r * cols + c] * rstds[r];
            d[r * cols + c] = rstds[r] * (d[r * cols + c] * g[c] - hat * dot / static_cast<double>(cols));
        }
    }
    write_sum(dx, d, dsum);
    write(dgain, dg, accumulate);
}

void merge(Context&, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, Out o, Out lse) {
    const i64 rows = s.rows();
    const Values a = read(o_a, rows * s.dim), b = read(o_b, rows * s.dim), la = read(lse_a, rows);
    const Values lb = read(lse_b, rows);
    Values os(a.size()), ls(la.size());
    for (i64 r = 0; r < rows; ++r) {
        const i64 at = statistic_of(s, r);
        const auto share = merge_shares<double>(la[at], lb[at]);
        for (i64 e = r * s.dim; e < (r + 1) * s.dim; ++e) os[e] = share.a * a[e] + share.b * b[e];
        ls[at] = share.lse;
    }
    write(o, os);
    write(lse, ls);
}

void merge_grad(Context&, const Merge& s, In o_a, In lse_a, In o_b, In lse_b, In d_o, In d_lse, Out do_a, Out dlse_a,
                Out do_b, Out dlse_b) {
    const i64 rows = s.rows();
    const Values a = read(o_a, rows * s.dim), b = read(o_b, rows * s.dim), d = read(d_o, rows * s.dim);
    const Values la = read(lse_a, rows), lb = read(lse_b, rows);
    const Values dl = d_lse.data == nullptr ? Values(la.size()) : read(d_lse, rows);
    Values da(a.size()), db(a.size()), dla(la.size()), dlb(la.size());
    for (i64 r = 0; r < rows; ++r) {
        const i64 at = statistic_of(s, r);
        const auto share = merge_shares<double>(la[at], lb[at]);
        double dot = 0;
        for (i64 e = r * s.dim; e < (r + 1) * s.dim; ++e) {
            da[e] = share.a * d[e];
            db[e] = share.b * d[e];
            dot += d[e] * (a[e] - b[e]);
        }
        dla[at] = share.a * (dl[at] + share.b * dot);
        dlb[at] = share.b * (dl[at] - share.a * dot);
    }
    write(do_a, da);
    write(dlse_a, dla);
    write(do_b, db);
    write(dlse_b, dlb);
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

}  // namespace orrery::kernels::reference
