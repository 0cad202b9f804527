// Attention in blocks: a block of scores is made, used and forgotten, as in Dao et al., "FlashAttention-2" (2023).
//
// A block is block_q queries x block_k keys; causal attention stops at the last key that the block's last query sees.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

constexpr i64 block_q = 64, block_k = 512;

ORRERY_INLINE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

/// How many of the first keys query i sees.
ORRERY_INLINE i64 visible(const Attention& s, i64 i) {
    if (!s.causal) return s.keys;
    const i64 n = i + s.shift + 1;
    return n < 0 ? 0 : smaller(n, s.keys);
}

/// One head of [B, T, heads, D] as a matrix [T, D].
struct Head {
    In x;
    i64 offset, stride, cols;

    Head(In operand, i64 batch, i64 rows, i64 heads, i64 head, i64 dim)
        : x(operand), offset((batch * rows * heads + head) * dim), stride(heads * dim), cols(dim) {}

    /// Rows as floats: where they lie when they are f32, else widened into `buffer`; sets the leading dim.
    const float* rows(i64 first, i64 n, float* buffer, i64& leading) const {
        if (x.type == Type::f32) {
            leading = stride;
            return x.as<float>() + offset + first * stride;
        }
        leading = cols;
        for (i64 r = 0; r < n; ++r) fetch(x, offset + (first + r) * stride, cols, buffer + r * cols);
        return buffer;
    }
    /// Where to write rows, and how to bring them home.
    float* place(i64 first, float* buffer, i64& leading) const {
        leading = x.type == Type::f32 ? stride : cols;
        return x.type == Type::f32 ? const_cast<float*>(x.as<float>()) + offset + first * stride : buffer;
    }
    void bring(i64 first, i64 n, const float* buffer) const {
        if (x.type == Type::f32) return;
        const Out y(const_cast<void*>(x.data), x.type);
        for (i64 r = 0; r < n; ++r) flush(y, offset + (first + r) * stride, cols, buffer + r * cols);
    }
};

/// Scratch of one thread, cut in pieces.
class Pieces {
public:
    explicit Pieces(float* at) : at_(at) {}
    float* take(i64 floats) {
        float* piece = at_;
        at_ += (floats + 15) / 16 * 16;
        return piece;
    }
    i64 used(const float* from) const { return at_ - from; }

private:
    float* at_;
};

struct ForwardScratch {
    float *k, *v, *q, *o, *scores, *top, *total;

    ForwardScratch(const Attention& s, Pieces p)
        : k(p.take(s.keys * s.head_dim)),
          v(p.take(s.keys * s.head_dim)),
          q(p.take(block_q * s.head_dim)),
          o(p.take(block_q * s.head_dim)),
          scores(p.take(block_q * block_k)),
          top(p.take(block_q)),
          total(p.take(block_q)) {}
    static i64 floats(const Attention& s) {
        return 2 * (s.keys * s.head_dim + 16) + 2 * (block_q * s.head_dim + 16) + block_q * block_k + 2 * block_q + 64;
    }
};

/// Scores of one block become exponentials; earlier sums and outputs are brought to the new maximum.
void soften(const Attention& s, const ForwardScratch& w, i64 i, i64 rows, i64 j, i64 n, float* o, i64 ldo) {
    for (i64 r = 0; r < rows; ++r) {
        float* row = w.scores + r * block_k;
        const i64 seen = visible(s, i + r) - j;
        const i64 limit = seen < 0 ? 0 : smaller(seen, n);
        if (limit > 0) {
            const float top = row_max(row, limit, w.top[r]);
            const float sum = exp_sum(row, row, limit, top);
            if (j > 0 && top != w.top[r]) {
                const float factor = __builtin_expf(w.top[r] - top);
                w.total[r] *= factor;
                map(
                    o + r * ldo, s.head_dim, [f = Vec(factor)](Vec x) { return x * f; }, o + r * ldo);
            }
            w.total[r] += sum;
            w.top[r] = top;
        }
        zero(row + limit, n - limit);
    }
}

void forward_head(const Attention& s, const ForwardScratch& w, const Head& q, const float* k, i64 ldk, const float* v,
                  i64 ldv, const Head& o, float* lse) {
    for (i64 i = 0; i < s.queries; i += block_q) {
        const i64 rows = smaller(block_q, s.queries - i), last = visible(s, i + rows - 1);
        i64 ldq = 0, ldo = 0;
        const float* qs = q.rows(i, rows, w.q, ldq);
        float* os = o.place(i, w.o, ldo);
        for (i64 r = 0; r < rows; ++r) {
            w.top[r] = -__builtin_inff();
            w.total[r] = 0;
            if (last == 0) zero(os + r * ldo, s.head_dim);
        }
        for (i64 j = 0; j < last; j += block_k) {
            const i64 n = smaller(block_k, last - j);
            gemm(false, true, rows, n, s.head_dim, static_cast<float>(s.scale), qs, ldq, k + j * ldk, ldk, 0, w.scores,
                 block_k);
            soften(s, w, i, rows, j, n, os, ldo);
            gemm(false, false, rows, s.head_dim, n, 1, w.scores, block_k, v + j * ldv, ldv, j > 0, os, ldo);
        }
        for (i64 r = 0; r < rows; ++r) {
            const float inverse = w.total[r] > 0 || w.total[r] != w.total[r] ? 1 / w.total[r] : 0;
            map(
                os + r * ldo, s.head_dim, [f = Vec(inverse)](Vec x) { return x * f; }, os + r * ldo);
            lse[i + r] = w.top[r] + __builtin_logf(w.total[r]);
        }
        o.bring(i, rows, os);
    }
}

void attention(Context& c, const Attention& s, In q, In k, In v, Out o, Out lse) {
    const i64 tasks = s.batch * s.heads, share = s.heads / s.groups, floats = ForwardScratch::floats(s);
    const int parts = parts_of(c.threads(), tasks, 1);
    float* scratch = static_cast<float*>(c.scratch(parts * floats * 4));
    team(parts, [&](int part) {
        const ForwardScratch w(s, Pieces(scratch + part * floats));
        const float *ks = nullptr, *vs = nullptr;
        i64 ldk = 0, ldv = 0, loaded = -1;
        const i64 end = cut(tasks, parts, part + 1, 1);
        for (i64 t = cut(tasks, parts, part, 1); t < end; ++t) {
            const i64 b = t / s.heads, h = t % s.heads, g = h / share;
            if (b * s.groups + g != loaded) {
                ks = Head(k, b, s.keys, s.groups, g, s.head_dim).rows(0, s.keys, w.k, ldk);
                vs = Head(v, b, s.keys, s.groups, g, s.head_dim).rows(0, s.keys, w.v, ldv);
                loaded = b * s.groups + g;
            }
            forward_head(s, w, Head(q, b, s.queries, s.heads, h, s.head_dim), ks, ldk, vs, ldv,
                         Head(o, b, s.queries, s.heads, h, s.head_dim), lse.as<float>() + t * s.queries);
        }
    });
}

struct BackwardScratch {
    float *k, *v, *dk, *dv, *q, *o, *d_o, *dq, *p, *dp, *delta;

    BackwardScratch(const Attention& s, Pieces p_)
        : k(p_.take(s.keys * s.head_dim)),
          v(p_.take(s.keys * s.head_dim)),
          dk(p_.take(s.keys * s.head_dim)),
          dv(p_.take(s.keys * s.head_dim)),
          q(p_.take(block_q * s.head_dim)),
          o(p_.take(block_q * s.head_dim)),
          d_o(p_.take(block_q * s.head_dim)),
          dq(p_.take(block_q * s.head_dim)),
          p(p_.take(block_q * block_k)),
          dp(p_.take(block_q * block_k)),
          delta(p_.take(block_q)) {}
    static i64 floats(const Attention& s) {
        return 4 * (s.keys * s.head_dim + 16) + 4 * (block_q * s.head_dim + 16) + 2 * block_q * block_k + block_q + 64;
    }
};

/// The keys and values of one group, and where their gradients gather.
struct Group {
    const float *k, *v;
    float *dk, *dv;
    i64 ldk = 0, ldv = 0, lddk = 0, lddv = 0;
};

void backward_head(const Attention& s, const BackwardScratch& w, const Head& q, const Head& o, const Head& d_o,
                   const Head& dq, const float* lse, const Group& g) {
    const auto scale = static_cast<float>(s.scale);
    for (i64 i = 0; i < s.queries; i += block_q) {
        const i64 rows = smaller(block_q, s.queries - i), last = visible(s, i + rows - 1);
        i64 ldq = 0, ldo = 0, ldd = 0, lddq = 0;
        const float* qs = q.rows(i, rows, w.q, ldq);
        const float* os = o.rows(i, rows, w.o, ldo);
        const float* ds = d_o.rows(i, rows, w.d_o, ldd);
        float* dqs = dq.place(i, w.dq, lddq);
        for (i64 r = 0; r < rows; ++r) {
            w.delta[r] = sum_map(
                s.head_dim, [](Vec x, Vec y) { return x * y; }, os + r * ldo, ds + r * ldd);
            if (last == 0) zero(dqs + r * lddq, s.head_dim);
        }
        for (i64 j = 0; j < last; j += block_k) {
            const i64 n = smaller(block_k, last - j);
            gemm(false, true, rows, n, s.head_dim, scale, qs, ldq, g.k + j * g.ldk, g.ldk, 0, w.p, block_k);
            gemm(false, true, rows, n, s.head_dim, 1, ds, ldd, g.v + j * g.ldv, g.ldv, 0, w.dp, block_k);
            for (i64 r = 0; r < rows; ++r) {
                float *p = w.p + r * block_k, *dp = w.dp + r * block_k;
                const i64 seen = visible(s, i + r) - j;
                const i64 limit = seen < 0 ? 0 : smaller(seen, n);
                map(
                    p, limit, [l = Vec(lse[i + r])](Vec x) { return exp(x - l); }, p);
                map(
                    dp, limit, [d = Vec(w.delta[r]), f = Vec(scale)](Vec x, Vec y) { return f * y * (x - d); }, dp, p);
                zero(p + limit, n - limit);
                zero(dp + limit, n - limit);
            }
            gemm(true, false, n, s.head_dim, rows, 1, w.p, block_k, ds, ldd, 1, g.dv + j * g.lddv, g.lddv);
            gemm(false, false, rows, s.head_dim, n, 1, w.dp, block_k, g.k + j * g.ldk, g.ldk, j > 0, dqs, lddq);
            gemm(true, false, n, s.head_dim, rows, 1, w.dp, block_k, qs, ldq, 1, g.dk + j * g.lddk, g.lddk);
        }
        dq.bring(i, rows, dqs);
    }
}

/// One task a group: its heads add to the same dk and dv, one after the other.
void attention_grad(Context& c, const Attention& s, In q, In k, In v, In o, In lse, In d_o, Out dq, Out dk, Out dv) {
    const i64 tasks = s.batch * s.groups, share = s.heads / s.groups, floats = BackwardScratch::floats(s);
    const int parts = parts_of(c.threads(), tasks, 1);
    float* scratch = static_cast<float*>(c.scratch(parts * floats * 4));
    team(parts, [&](int part) {
        const BackwardScratch w(s, Pieces(scratch + part * floats));
        const i64 end = cut(tasks, parts, part + 1, 1);
        for (i64 t = cut(tasks, parts, part, 1); t < end; ++t) {
            const i64 b = t / s.groups;
            const auto group = [&](In x) { return Head(x, b, s.keys, s.groups, t % s.groups, s.head_dim); };
            const auto head = [&](In x, i64 h) { return Head(x, b, s.queries, s.heads, h, s.head_dim); };
            const Head dk_home = group(dk), dv_home = group(dv);
            Group g{};
            g.k = group(k).rows(0, s.keys, w.k, g.ldk);
            g.v = group(v).rows(0, s.keys, w.v, g.ldv);
            g.dk = dk_home.place(0, w.dk, g.lddk);
            g.dv = dv_home.place(0, w.dv, g.lddv);
            for (i64 j = 0; j < s.keys; ++j) {
                zero(g.dk + j * g.lddk, s.head_dim);
                zero(g.dv + j * g.lddv, s.head_dim);
            }
            for (i64 h = t % s.groups * share; h < (t % s.groups + 1) * share; ++h) {
                backward_head(s, w, head(q, h), head(o, h), head(d_o, h), head(dq, h),
                              lse.as<float>() + (b * s.heads + h) * s.queries, g);
            }
            dk_home.bring(0, s.keys, g.dk);
            dv_home.bring(0, s.keys, g.dv);
        }
    });
}

}  // namespace

void add_attention(Kernels& k) {
    k.attention = attention;
    k.attention_grad = attention_grad;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
