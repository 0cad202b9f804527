#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

/// The keys that one query sees, in ascending order.
std::vector<i64> seen_keys(const Attention& s, const AttentionIndex& at, i64 b, i64 i) {
    const i64 shift = s.part(b).shift;
    std::vector<i64> keys;
    for (i64 j = 0; j < s.keys; ++j) {
        i64 ago = i + shift - j;  // positions from the key to the query
        if (s.indexed) {
            const std::int32_t document = at.documents[b * s.queries + i];
            if (document < 0 || document != at.key_documents[b * s.keys + j]) continue;
            ago = i64{at.positions[b * s.queries + i]} - at.key_positions[b * s.keys + j];
        }
        if (s.causal && (ago < 0 || (s.window > 0 && ago >= s.window))) continue;
        keys.push_back(j);
    }
    return keys;
}

/// Offsets of one head's row of `dim` elements in [B, T, heads, dim].
i64 query_row(const Attention& s, i64 b, i64 h, i64 i, i64 dim) { return ((b * s.queries + i) * s.heads + h) * dim; }
i64 key_row(const Attention& s, i64 b, i64 h, i64 j, i64 dim) {
    return ((b * s.keys + j) * s.groups + h / (s.heads / s.groups)) * dim;
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

/// Numbers of elements of operands that are shaped like q, o, k, v and lse.
struct Counts {
    i64 q, o, k, v, lse;
    explicit Counts(const Attention& s)
        : q(s.batch * s.queries * s.heads * s.head_dim),
          o(s.batch * s.queries * s.heads * s.values()),
          k(s.batch * s.keys * s.groups * s.head_dim),
          v(s.batch * s.keys * s.groups * s.values()),
          lse(s.batch * s.heads * s.queries) {}
};

Values zeros(i64 n) { return Values(static_cast<size_t>(n)); }

void attention(Context& c, const Attention& s, In q, In k, In v, const AttentionIndex& at, Out o, Out lse) {
    c.scratch(0);
    const Counts n(s);
    const i64 dim = s.head_dim, value_dim = s.values();
    const Values qs = read(q, n.q), ks = read(k, n.k), vs = read(v, n.v);
    Values os = zeros(n.o), ls = zeros(n.lse), p;
    for_each_query(s, [&](i64 b, i64 h, i64 i) {
        const std::vector<i64> keys = seen_keys(s, at, b, i);
        double& l = ls[s.statistic(b, h, i)];
        l = -std::numeric_limits<double>::infinity();
        if (keys.empty()) return;
        p.clear();
        for (const i64 j : keys)
            p.push_back(s.scale * dot(qs, query_row(s, b, h, i, dim), ks, key_row(s, b, h, j, dim), dim));
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& e : p) sum += e = std::exp(e - top);
        l = top + std::log(sum);
        const i64 oi = query_row(s, b, h, i, value_dim);
        for (size_t e = 0; e < keys.size(); ++e) {
            const i64 vj = key_row(s, b, h, keys[e], value_dim);
            for (i64 d = 0; d < value_dim; ++d) os[oi + d] += p[e] / sum * vs[vj + d];
        }
    });
    write(o, os);
    write(lse, ls);
}

void attention_grad(Context& c, const Attention& s, In q, In k, In v, In o, In lse, In d_o, const AttentionIndex& at,
                    In d_lse, Out dq, Out dk, Out dv) {
    c.scratch(0);
    const Counts n(s);
    const i64 dim = s.head_dim, value_dim = s.values();
    const Values qs = read(q, n.q), ks = read(k, n.k), vs = read(v, n.v), os = read(o, n.o), ds = read(d_o, n.o);
    const Values ls = read(lse, n.lse), dls = d_lse.data == nullptr ? zeros(n.lse) : read(d_lse, n.lse);
    Values dqs = zeros(n.q), dks = zeros(n.k), dvs = zeros(n.v);
    for_each_query(s, [&](i64 b, i64 h, i64 i) {
        const i64 qi = query_row(s, b, h, i, dim), oi = query_row(s, b, h, i, value_dim);
        const i64 li = s.statistic(b, h, i);
        const double mean = dot(ds, oi, os, oi, value_dim);
        for (const i64 j : seen_keys(s, at, b, i)) {
            const i64 kj = key_row(s, b, h, j, dim), vj = key_row(s, b, h, j, value_dim);
            const double p = std::exp(s.scale * dot(qs, qi, ks, kj, dim) - ls[li]);
            const double dscore = s.scale * p * (dot(ds, oi, vs, vj, value_dim) - mean + dls[li]);
            for (i64 d = 0; d < value_dim; ++d) dvs[vj + d] += p * ds[oi + d];
            for (i64 d = 0; d < dim; ++d) {
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
