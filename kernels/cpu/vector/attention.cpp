// Attention in blocks: a block of scores is made, used and dropped, as in Dao et al., "FlashAttention-2" (2023).
//
// A task widens its keys and values to scratch once (also transposed: keys, and values for the backward pass), then
// walks the queries in blocks of block_q x block_k scores. Causal attention skips keys that none of six rows sees: the
// products follow the diagonal, and that of a window, in steps of six, where products of packing libraries lose time.
#include "kernels/cpu/attention_walk.h"
#include "kernels/cpu/micro.h"
#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

constexpr i64 score_stride = block_k + micro_cols;

/// Length of a row of n numbers, rounded up for the GEMMs; 16 more prevent cache conflicts between rows.
i64 stride_of(i64 n) { return (n + micro_cols - 1) / micro_cols * micro_cols + 16; }

/// One head of [B, T, heads, D] as a matrix [T, D].
struct Head {
    In x;
    i64 offset, stride, cols;

    Head(In operand, i64 batch, i64 rows, i64 heads, i64 head, i64 dim)
        : x(operand), offset((batch * rows * heads + head) * dim), stride(heads * dim), cols(dim) {}

    void read(i64 first, i64 n, float* to, i64 to_stride) const {
        for (i64 r = 0; r < n; ++r) {
            float* row = to + r * to_stride;
            const float* from = fetch(x, offset + (first + r) * stride, cols, row);
            if (from != row) __builtin_memcpy(row, from, static_cast<size_t>(cols) * 4);
        }
    }
    void write(i64 first, i64 n, const float* from, i64 from_stride) const {
        const Out y(const_cast<void*>(x.data), x.type);
        for (i64 r = 0; r < n; ++r) {
            const i64 at = offset + (first + r) * stride;
            if (y.type == Type::f32)
                __builtin_memcpy(y.as<float>() + at, from + r * from_stride, static_cast<size_t>(cols) * 4);
            else
                flush(y, at, cols, from + r * from_stride);
        }
    }
};

/// y [cols, rows] = the transpose of x [rows, cols].
void turn(const float* x, i64 rows, i64 cols, i64 x_stride, float* y, i64 y_stride) {
    for (i64 r0 = 0; r0 < rows; r0 += 16) {
        const i64 r1 = smaller(rows, r0 + 16);
        for (i64 col = 0; col < cols; ++col) {
            for (i64 r = r0; r < r1; ++r) y[col * y_stride + r] = x[r * x_stride + col];
        }
    }
}

/// Splits the scratch of one thread; without memory it only counts.
class Pieces {
public:
    explicit Pieces(float* at) : start_(at), at_(at) {}
    float* take(i64 floats) {
        float* piece = at_;
        at_ += (floats + 15) / 16 * 16;
        return piece;
    }
    i64 taken() const { return at_ - start_; }

private:
    float *start_, *at_;
};

/// The buffers of a task; those of the last two lines are for the backward pass only.
struct Scratch {
    i64 ld, ldv, ldt;  ///< strides of rows of q and k, of v and o, and of columns
    float *k, *v, *kt, *q, *o, *p, *top, *total;
    float *vt, *dk, *dv, *d_o, *dq, *dp;
    i64 floats;

    Scratch(const Attention& s, float* memory, bool backward)
        : ld(stride_of(s.head_dim)), ldv(stride_of(s.values())), ldt(stride_of(s.keys)) {
        Pieces pieces(memory);
        const i64 keys = s.keys * ld, values = s.keys * ldv, scores = block_q * score_stride;
        k = pieces.take(keys);
        v = pieces.take(values);
        kt = pieces.take(s.head_dim * ldt);
        q = pieces.take(block_q * ld);
        o = pieces.take(block_q * ldv);
        p = pieces.take(scores);
        top = pieces.take(block_q);
        total = pieces.take(block_q);
        vt = pieces.take(backward ? s.values() * ldt : 0);
        dk = pieces.take(backward ? keys : 0);
        dv = pieces.take(backward ? values : 0);
        d_o = pieces.take(backward ? block_q * ldv : 0);
        dq = pieces.take(backward ? block_q * ld : 0);
        dp = pieces.take(backward ? scores : 0);
        floats = pieces.taken();
    }
};

/// scores = scale * x y^T for [rows, dim] x and transposed y [dim, keys].
ORRERY_INLINE void scores(const Block& b, i64 dim, const float* x, i64 ld, const float* y, i64 ldt, float* to,
                          float scale) {
    small_gemm(b.rows, b.n, {x, ld, 1}, y + b.j, ldt, to, score_stride, scale, false, [&](i64 first, i64 last) {
        const Part keys = b.keys_of(first, last);
        return Extent{keys.begin, keys.end, 0, dim};
    });
}
/// c [rows, dim] (+)= p y for y [keys, dim].
ORRERY_INLINE void times_keys(const Block& b, i64 dim, const float* p, const float* y, i64 ld, float* c) {
    small_gemm(b.rows, dim, {p, score_stride, 1}, y + b.j * ld, ld, c, ld, 1, !b.first, [&](i64 first, i64 last) {
        const Part keys = b.keys_of(first, last);
        return Extent{0, b.sights && !b.first && keys.empty() ? 0 : dim, keys.begin, keys.end};
    });
}
/// c [keys, dim] += p^T x for x [rows, dim].
ORRERY_INLINE void times_rows(const Block& b, i64 dim, const float* p, const float* x, i64 ld, float* c) {
    small_gemm(b.n, dim, {p, 1, score_stride}, x, ld, c + b.j * ld, ld, 1, true, [&](i64 first, i64 last) {
        const Part rows = b.rows_of(first, last);
        return Extent{0, b.sights && rows.empty() ? 0 : dim, rows.begin, rows.end};
    });
}
/// Clears the keys of a row that it does not see. Without indices up to six on either side are enough, because the
/// GEMMs round the range up.
ORRERY_INLINE void clear_rest(const Block& b, float* row, i64 from, i64 limit) {
    const i64 before = b.sights ? from : smaller(micro_rows, from), behind = b.n - limit;
    zero(row + from - before, before);
    zero(row + limit, b.sights ? behind : smaller(micro_rows, behind));
}

/// Replaces scores by exponentials; rescales earlier sums and outputs to the new maximum.
void soften(const Block& b, const Scratch& w) {
    for (i64 r = 0; r < b.rows; ++r) {
        float *row = w.p + r * score_stride, *o = w.o + r * w.ldv;
        const i64 from = b.from(r), limit = b.seen(r);
        if (limit > from) {
            if (b.gaps(r)) b.sights->mask(r, row);
            const float top = row_max(row + from, limit - from, w.top[r]);
            const float sum = exp_sum(row + from, row + from, limit - from, top);
            if (!b.first && top != w.top[r]) {
                const float factor = __builtin_expf(w.top[r] - top);
                w.total[r] *= factor;
                map(
                    o, b.s.values(), [f = Vec(factor)](Vec x) { return x * f; }, o);
            }
            w.total[r] += sum;
            w.top[r] = top;
        }
        clear_rest(b, row, from, limit);
    }
}

void forward_head(const Attention& s, const Indexed* indexed, const Scratch& w, const Head& q, const Head& o,
                  float* lse) {
    const auto begin = [&](const Queries& at) {
        q.read(at.i, at.rows, w.q, w.ld);
        for (i64 r = 0; r < at.rows; ++r) {
            w.top[r] = -__builtin_inff();
            w.total[r] = 0;
            if (at.begin >= at.end) zero(w.o + r * w.ldv, s.values());
        }
    };
    const auto visit = [&](const Block& b) {
        scores(b, s.head_dim, w.q, w.ld, w.kt, w.ldt, w.p, static_cast<float>(s.scale));
        soften(b, w);
        times_keys(b, s.values(), w.p, w.v, w.ldv, w.o);
    };
    const auto end = [&](const Queries& at) {
        for (i64 r = 0; r < at.rows; ++r) {
            const float total = w.total[r], inverse = total == 0 ? 0 : 1 / total;
            float* row = w.o + r * w.ldv;
            map(
                row, s.values(), [f = Vec(inverse)](Vec x) { return x * f; }, row);
            lse[at.i + r] = w.top[r] + __builtin_logf(total);
        }
        o.write(at.i, at.rows, w.o, w.ldv);
    };
    walk(s, indexed, begin, visit, end);
}

/// Multiplications that a part of a team has at least; starting a thread costs as much as some 100,000.
constexpr i64 work_of_part = i64{1} << 18;

/// Scratch: what queries see by index, and memory for each part of a team, `floats` apart.
class Team {
public:
    /// `heads`: query heads of a task.
    Team(Context& c, const Attention& s, const AttentionIndex& at, i64 tasks, i64 heads, bool backward)
        : parts(parts_of(c.threads(), tasks, 1 + work_of_part / (heads * s.queries * s.keys * s.head_dim + 1))),
          floats(Scratch(s, nullptr, backward).floats),
          s_(s),
          at_(at),
          tiles_((s.keys + tile_k - 1) / tile_k) {
        const i64 spans = s.indexed ? s.batch * s.queries : 0, bounds = s.indexed ? s.batch * tiles_ : 0;
        const i64 bytes = spans * i64{sizeof(Span)} + bounds * i64{sizeof(Bounds)}, of_parts = parts * floats * 4;
        memory = static_cast<float*>(c.scratch(of_parts + bytes));
        bounds_ = reinterpret_cast<Bounds*>(memory + parts * floats);
        spans_ = reinterpret_cast<Span*>(bounds_ + bounds);
        parallel(c.threads(), bounds, 64, 1, [&](i64 from, i64 end) {
            for (i64 t = from; t < end; ++t) of(t / tiles_).bound(t % tiles_);
        });
        const i64 blocks = (s.queries + block_q - 1) / block_q;
        parallel(c.threads(), s.indexed ? s.batch * blocks : 0, 8, 1, [&](i64 from, i64 end) {
            for (i64 t = from; t < end; ++t) {
                const i64 i = t % blocks * block_q;
                of(t / blocks).find(i, smaller(block_q, s.queries - i));
            }
        });
    }

    /// A row of the batch by index.
    Indexed of(i64 b) const {
        if (!s_.indexed) return {s_, at_, nullptr, nullptr};
        const i64 q = b * s_.queries, k = b * s_.keys;
        return {s_,
                {at_.documents + q, at_.positions + q, at_.key_documents + k, at_.key_positions + k},
                bounds_ + b * tiles_,
                spans_ + q};
    }

    int parts;
    i64 floats;
    float* memory;

private:
    const Attention& s_;
    const AttentionIndex& at_;
    i64 tiles_;
    Bounds* bounds_;
    Span* spans_;
};

void attention(Context& c, const Attention& s, In q, In k, In v, const AttentionIndex& at, Out o, Out lse) {
    const i64 tasks = s.batch * s.heads, share = s.heads / s.groups;
    const Team all(c, s, at, tasks, 1, false);
    team(all.parts, [&](int part) {
        const Scratch w(s, all.memory + part * all.floats, false);
        i64 loaded = -1;
        const i64 end = cut(tasks, all.parts, part + 1, 1);
        for (i64 t = cut(tasks, all.parts, part, 1); t < end; ++t) {
            const i64 b = t / s.heads, h = t % s.heads, g = h / share;
            if (b * s.groups + g != loaded) {
                Head(k, b, s.keys, s.groups, g, s.head_dim).read(0, s.keys, w.k, w.ld);
                Head(v, b, s.keys, s.groups, g, s.values()).read(0, s.keys, w.v, w.ldv);
                turn(w.k, s.keys, s.head_dim, w.ld, w.kt, w.ldt);
                loaded = b * s.groups + g;
            }
            const Indexed indexed = all.of(b);
            forward_head(s.part(b), s.indexed ? &indexed : nullptr, w, Head(q, b, s.queries, s.heads, h, s.head_dim),
                         Head(o, b, s.queries, s.heads, h, s.values()), lse.as<float>() + s.statistic(b, h, 0));
        }
    });
}

/// p: scores to probabilities; dp: gradients of probabilities to those of scores. total has sum(o * do) - dlse of each
/// row.
void backward_block(const Block& b, const Scratch& w, const float* lse) {
    const Vec scale(b.s.scale);
    for (i64 r = 0; r < b.rows; ++r) {
        float *p = w.p + r * score_stride, *dp = w.dp + r * score_stride;
        const i64 from = b.from(r), limit = b.seen(r);
        float *seen = p + from, *slope = dp + from;
        if (b.gaps(r)) b.sights->mask(r, p);
        map(
            seen, limit - from, [l = Vec(lse[b.i + r])](Vec x) { return exp(x - l); }, seen);
        map(
            slope, limit - from, [d = Vec(w.total[r]), scale](Vec x, Vec y) { return scale * y * (x - d); }, slope,
            seen);
        clear_rest(b, p, from, limit);
        clear_rest(b, dp, from, limit);
    }
}

/// The operands of one head; lse and dlse (null: 0) of its queries.
struct Slopes {
    Head q, o, d_o, dq;
    const float *lse, *d_lse;
};

void backward_head(const Attention& s, const Indexed* indexed, const Scratch& w, const Slopes& h) {
    const auto begin = [&](const Queries& at) {
        h.q.read(at.i, at.rows, w.q, w.ld);
        h.o.read(at.i, at.rows, w.o, w.ldv);
        h.d_o.read(at.i, at.rows, w.d_o, w.ldv);
        for (i64 r = 0; r < at.rows; ++r) {
            w.total[r] = sum_map(
                s.values(), [](Vec x, Vec y) { return x * y; }, w.o + r * w.ldv, w.d_o + r * w.ldv);
            if (h.d_lse != nullptr) w.total[r] -= h.d_lse[at.i + r];
            if (at.begin >= at.end) zero(w.dq + r * w.ld, s.head_dim);
        }
    };
    const auto visit = [&](const Block& b) {
        scores(b, s.head_dim, w.q, w.ld, w.kt, w.ldt, w.p, static_cast<float>(s.scale));
        scores(b, s.values(), w.d_o, w.ldv, w.vt, w.ldt, w.dp, 1);
        backward_block(b, w, h.lse);
        times_rows(b, s.values(), w.p, w.d_o, w.ldv, w.dv);
        times_keys(b, s.head_dim, w.dp, w.k, w.ld, w.dq);
        times_rows(b, s.head_dim, w.dp, w.q, w.ld, w.dk);
    };
    walk(s, indexed, begin, visit, [&](const Queries& at) { h.dq.write(at.i, at.rows, w.dq, w.ld); });
}

/// One task per group: its heads add to the same dk and dv, one after the other.
void attention_grad(Context& c, const Attention& s, In q, In k, In v, In o, In lse, In d_o, const AttentionIndex& at,
                    In d_lse, Out dq, Out dk, Out dv) {
    const i64 tasks = s.batch * s.groups, share = s.heads / s.groups;
    const Team all(c, s, at, tasks, share, true);
    team(all.parts, [&](int part) {
        const Scratch w(s, all.memory + part * all.floats, true);
        const i64 end = cut(tasks, all.parts, part + 1, 1);
        for (i64 t = cut(tasks, all.parts, part, 1); t < end; ++t) {
            const i64 b = t / s.groups;
            const auto group = [&](In x, i64 dim) { return Head(x, b, s.keys, s.groups, t % s.groups, dim); };
            const auto head = [&](In x, i64 h, i64 dim) { return Head(x, b, s.queries, s.heads, h, dim); };
            group(k, s.head_dim).read(0, s.keys, w.k, w.ld);
            group(v, s.values()).read(0, s.keys, w.v, w.ldv);
            turn(w.k, s.keys, s.head_dim, w.ld, w.kt, w.ldt);
            turn(w.v, s.keys, s.values(), w.ldv, w.vt, w.ldt);
            zero(w.dk, s.keys * w.ld);
            zero(w.dv, s.keys * w.ldv);
            const Indexed indexed = all.of(b);
            for (i64 h = t % s.groups * share; h < (t % s.groups + 1) * share; ++h) {
                const i64 row = s.statistic(b, h, 0);
                backward_head(
                    s.part(b), s.indexed ? &indexed : nullptr, w,
                    {head(q, h, s.head_dim), head(o, h, s.values()), head(d_o, h, s.values()), head(dq, h, s.head_dim),
                     lse.as<float>() + row, d_lse.data == nullptr ? nullptr : d_lse.as<float>() + row});
            }
            group(dk, s.head_dim).write(0, s.keys, w.dk, w.ld);
            group(dv, s.values()).write(0, s.keys, w.dv, w.ldv);
        }
    });
}

}  // namespace

void add_attention(Kernels& k) {
    k.attention = attention;
    k.attention_grad = attention_grad;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
