#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

/// Query i sees the keys first_key(i) .. visible(i) - 1.
i64 visible(const Attention& s, i64 i) { return s.causal ? std::clamp<i64>(i + s.shift + 1, 0, s.keys) : s.keys; }
i64 first_key(const Attention& s, i64 i) {
    return s.window > 0 ? std::clamp<i64>(i + s.shift + 1 - s.window, 0, s.keys) : 0;
}

/// Offsets of one head's row in [B, T, heads, D].
i64 query_row(const Attention& s, i64 b, i64 h, i64 i) { return ((b * s.queries + i) * s.heads + h) * s.head_dim; }
i64 key_row(const Attention& s, i64 b, i64 h, i64 j) {
    return ((b * s.keys + j) * s.groups + h / (s.heads / s.groups)) * s.head_dim;
}

double dot(const Values& a, i64 at, const Values& b, i64 bt, i64 n) {
    double sum = 0;
    for (i64 d = 0; d < n; ++d) sum += a[at + d] * b[bt + d];
    return sum;
}

template <class F>
void for_each_query(const Attention& s, F f) {
    for (i64 b = 0; b < s.batch; ++b) {
        for (i64 h = 0; h < s.heads; ++h) {
            for (i64 i = 0; i < s.queries; ++i) f(b, h, i);
        }
    }
}

void attention(Context&, const Attention& s, In q, In k, In v, Out o, Out lse) {
    const i64 nq = s.batch * s.queries * s.heads * s.head_dim, nk = s.batch * s.keys * s.groups * s.head_dim;
    const Values qs = read(q, nq), ks = read(k, nk), vs = read(v, nk);
    Values os(static_cast<size_t>(nq)), ls(static_cast<size_t>(s.batch * s.heads * s.queries)), p;
    for_each_query(s, [&](i64 b, i64 h, i64 i) {
        const i64 first = first_key(s, i), n = visible(s, i) - first;
        double& l = ls[(b * s.heads + h) * s.queries + i];
        l = -std::numeric_limits<double>::infinity();
        if (n == 0) return;
        p.resize(static_cast<size_t>(n));
        for (i64 j = 0; j < n; ++j) {
            p[j] = s.scale * dot(qs, query_row(s, b, h, i), ks, key_row(s, b, h, first + j), s.head_dim);
        }
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& e : p) sum += e = std::exp(e - top);
        l = top + std::log(sum);
        for (i64 j = 0; j < n; ++j) {
            for (i64 d = 0; d < s.head_dim; ++d) {
                os[query_row(s, b, h, i) + d] += p[j] / sum * vs[key_row(s, b, h, first + j) + d];
            }
        }
    });
    write(o, os);
    write(lse, ls);
}

void attention_grad(Context&, const Attention& s, In q, In k, In v, In o, In lse, In d_o, Out dq, Out dk, Out dv) {
    const i64 nq = s.batch * s.queries * s.heads * s.head_dim, nk = s.batch * s.keys * s.groups * s.head_dim;
    const Values qs = read(q, nq), ks = read(k, nk), vs = read(v, nk), os = read(o, nq), ds = read(d_o, nq);
    const Values ls = read(lse, s.batch * s.heads * s.queries);
    Values dqs(static_cast<size_t>(nq)), dks(static_cast<size_t>(nk)), dvs(static_cast<size_t>(nk));
    for_each_query(s, [&](i64 b, i64 h, i64 i) {
        const i64 qi = query_row(s, b, h, i);
        const double mean = dot(ds, qi, os, qi, s.head_dim);
        for (i64 j = first_key(s, i); j < visible(s, i); ++j) {
            const i64 kj = key_row(s, b, h, j);
            const double score = s.scale * dot(qs, qi, ks, kj, s.head_dim);
            const double p = std::exp(score - ls[(b * s.heads + h) * s.queries + i]);
            const double dscore = s.scale * p * (dot(ds, qi, vs, kj, s.head_dim) - mean);
            for (i64 d = 0; d < s.head_dim; ++d) {
                dvs[kj + d] += p * ds[qi + d];
                dqs[qi + d] += dscore * ks[kj + d];
                dks[kj + d] += dscore * qs[qi + d];
            }
        }
    });
    write(dq, dqs);
    write(dk, dks);
    write(dv, dvs);
}

}  // namespace

void add_attention(Kernels& k) {
    k.attention = attention;
    k.attention_grad = attention_grad;
}

}  // namespace orrery::kernels::reference
