// Attention by tiles with running maxima, after Dao et al., "FlashAttention" (2022): no score is stored. All sums in
// f32 by plain multiplications, no atomics. For what cuDNN does not support: f32, other head sizes, no cuDNN.
#pragma once

#include <cmath>
#include <stdexcept>

#include "kernels/attention_bounds.h"
#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr int most_head_dim = 256;

ORRERY_HOST_DEVICE int larger_dim(const Attention& s) {
    return static_cast<int>(s.head_dim > s.values() ? s.head_dim : s.values());
}

constexpr int bound_rows = 32;  ///< queries or keys that share their bounds

/// Offsets of the rows of one (batch, head), and which keys a query sees.
template <bool indexed>
struct Heads {
    Attention s;
    AttentionIndex at = {};
    const Bounds* of_queries = nullptr;  ///< [batch, tiles of bound_rows]: what they look for
    const Bounds* of_keys = nullptr;     ///< [batch, tiles of bound_rows]: their places

    ORRERY_DEVICE i64 query(i64 b, i64 h, i64 i) const { return ((b * s.queries + i) * s.heads + h) * s.head_dim; }
    ORRERY_DEVICE i64 key(i64 b, i64 g, i64 j) const { return ((b * s.keys + j) * s.groups + g) * s.head_dim; }
    ORRERY_DEVICE i64 result(i64 b, i64 h, i64 i) const { return ((b * s.queries + i) * s.heads + h) * s.values(); }
    ORRERY_DEVICE i64 value(i64 b, i64 g, i64 j) const { return ((b * s.keys + j) * s.groups + g) * s.values(); }
    /// These, for part b of the batch.
    ORRERY_DEVICE Heads part(i64 b) const {
        Heads one = *this;
        one.s = s.part(b);
        return one;
    }
    /// Number of leading keys that query i may see.
    ORRERY_DEVICE i64 visible(i64 i) const {
        if (indexed || !s.causal) return s.keys;
        const i64 n = i + s.shift + 1;
        return n < 0 ? 0 : n > s.keys ? s.keys : n;
    }
    /// The first key that query i sees, with a window.
    ORRERY_DEVICE i64 first_key(i64 i) const {
        const i64 n = i + s.shift + 1 - s.window;
        return indexed || s.window == 0 || n < 0 ? 0 : n > s.keys ? s.keys : n;
    }
    /// The first query that sees key j, and one past the last.
    ORRERY_DEVICE i64 first_query(i64 j) const {
        if (indexed || !s.causal) return 0;
        return j - s.shift < 0 ? 0 : j - s.shift;
    }
    ORRERY_DEVICE i64 end_query(i64 j) const {
        const i64 n = j - s.shift + s.window;
        return indexed || s.window == 0 || n > s.queries ? s.queries : n;
    }
    /// Whether a query of `side` from `first_q` on may see a key of `side` from `first_k` on; the same for all threads.
    ORRERY_DEVICE bool meet(i64 b, i64 first_q, i64 first_k, int side) const {
        if (!indexed) return true;
        const i64 queries = (s.queries + bound_rows - 1) / bound_rows, keys = (s.keys + bound_rows - 1) / bound_rows;
        for (i64 i = first_q / bound_rows; i < queries && i * bound_rows < first_q + side; ++i) {
            for (i64 j = first_k / bound_rows; j < keys && j * bound_rows < first_k + side; ++j) {
                if (of_queries[b * queries + i].meet(of_keys[b * keys + j])) return true;
            }
        }
        return false;
    }
};

/// The keys that one query sees.
template <bool indexed>
struct Sight {
    i64 begin, seen;
    Bounds sought;

    ORRERY_DEVICE Sight(const Heads<indexed>& h, i64 b, i64 i) {
        const bool there = i < h.s.queries;
        if constexpr (indexed) {
            begin = 0, seen = h.s.keys;
            const i64 at = b * h.s.queries + i;
            if (there) sought = sought_by(h.s, h.at.documents[at], h.at.positions[at]);
        } else {
            begin = h.first_key(i), seen = there ? h.visible(i) : 0;
        }
    }
    ORRERY_DEVICE bool sees(const Heads<indexed>& h, i64 b, i64 j) const {
        if (j < begin || j >= seen) return false;
        if (!indexed) return true;
        const i64 at = b * h.s.keys + j;
        return sought.sees(h.at.key_documents[at], h.at.key_positions[at]);
    }
};

/// Bounds of each tile of queries, or of keys; a tile a thread.
struct BoundTiles {
    static constexpr int threads = 64;
    static constexpr bool barriers = false;
    Attention s;
    const std::int32_t *documents, *positions;
    bool keys;
    Bounds* to;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 rows = keys ? s.keys : s.queries, tiles = (rows + bound_rows - 1) / bound_rows;
        const i64 tile = b.index() * threads + b.thread();
        if (tile >= s.batch * tiles) return;
        Bounds all;
        for (i64 r = tile % tiles * bound_rows, n = 0; n < bound_rows && r < rows; ++n, ++r) {
            const i64 at = tile / tiles * rows + r;
            all.add(keys ? place_of(documents[at], positions[at]) : sought_by(s, documents[at], positions[at]));
        }
        to[tile] = all;
    }
};

/// rows x elements of a head, floats of shared memory, with one float of padding after each row.
struct Tile {
    float* data;
    int pitch;
    ORRERY_DEVICE float& at(int r, int d) const { return data[r * pitch + d]; }
};

/// Loads n rows from `first` on (zeros from `end` on), row r from where(r).
template <class Where>
ORRERY_DEVICE void load_tile(const Block& b, const Tile& to, const AnyIn& x, int n, i64 first, i64 end, i64 dim,
                             Where where) {
    const int runs = static_cast<int>((dim + run - 1) / run);
    for (int i = b.thread(); i < n * runs; i += b.threads()) {
        const int r = i / runs, d = i % runs * run;
        float v[run] = {};
        if (first + r < end) x.load(where(first + r) + d, dim - d, v);
#pragma unroll
        for (int l = 0; l < run; ++l) {
            if (d + l < dim) to.at(r, d + l) = v[l];
        }
    }
}

/// o and lse of 64 queries of one head; 16 x 16 threads, each with 4 queries and every 16th key or element. most_dims:
/// elements of the head per thread.
template <int most_dims, bool indexed>
struct AttentionTile {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    static constexpr int side = 64, each = 4;
    Heads<indexed> all;
    AnyIn q, k, v;
    AnyOut o;
    float* lse;
    i64 tiles;

    static i64 shared_bytes(const Attention& s) { return side * (s.head_dim + 1 + larger_dim(s) + 1 + side + 1) * 4; }

    ORRERY_DEVICE void operator()(const Block& b) const {
        const Attention& s = all.s;
        const int dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
        // Late tiles see most keys, so they start first.
        const i64 first = (tiles - 1 - b.index() % tiles) * side, head = b.index() / tiles % s.heads;
        const i64 batch = b.index() / tiles / s.heads, group = head / (s.heads / s.groups);
        const Heads<indexed> h = all.part(batch);
        const Tile qs{b.shared<float>(), dim + 1}, ks{qs.data + side * (dim + 1), dim + 1}, vs{ks.data, values + 1};
        const Tile ps{ks.data + side * (larger_dim(s) + 1), side + 1};
        const int row = b.thread() / 16 * each, col = b.thread() % 16;
        float out[each][most_dims] = {}, top[each], total[each] = {};
        for (float& t : top) t = -INFINITY;
        load_tile(b, qs, q, side, first, s.queries, dim, [&](i64 i) { return h.query(batch, head, i); });
        const i64 last = first + side < s.queries ? first + side : s.queries;
        const i64 keys = h.visible(last - 1);
        for (i64 from = h.first_key(first) / side * side; from < keys; from += side) {
            if (!h.meet(batch, first, from, side)) continue;
            b.sync();
            load_tile(b, ks, k, side, from, s.keys, dim, [&](i64 j) { return h.key(batch, group, j); });
            b.sync();
            float score[each][4] = {};
            for (int d = 0; d < dim; ++d) {
#pragma unroll
                for (int i = 0; i < each; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) score[i][j] += qs.at(row + i, d) * ks.at(col + j * 16, d);
                }
            }
#pragma unroll
            for (int i = 0; i < each; ++i) {
                const Sight<indexed> by(h, batch, first + row + i);
                float most = -INFINITY;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const i64 key = from + col + j * 16;
                    score[i][j] = by.sees(h, batch, key) ? score[i][j] * static_cast<float>(s.scale) : -INFINITY;
                    most = Block::larger(most, score[i][j]);
                }
                most = Block::larger(top[i], b.max(most, 16));
                const float keep = most == -INFINITY ? 1.0f : expf(top[i] - most);
                float sum = 0;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float p = score[i][j] == -INFINITY ? 0.0f : expf(score[i][j] - most);
                    ps.at(row + i, col + j * 16) = p;
                    sum += p;
                }
                total[i] = total[i] * keep + b.sum(sum, 16);
                top[i] = most;
#pragma unroll
                for (int d = 0; d < most_dims; ++d) out[i][d] *= keep;
            }
            b.sync();
            load_tile(b, vs, v, side, from, s.keys, values, [&](i64 j) { return h.value(batch, group, j); });
            b.sync();
            for (int j = 0; j < side; ++j) {
#pragma unroll
                for (int d = 0; d < most_dims; ++d) {
                    if (col + d * 16 >= values) continue;
                    const float value = vs.at(j, col + d * 16);
#pragma unroll
                    for (int i = 0; i < each; ++i) out[i][d] += ps.at(row + i, j) * value;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < each; ++i) {
            const i64 query = first + row + i;
            if (query >= s.queries) continue;
            const float by = total[i] > 0 || total[i] != total[i] ? 1.0f / total[i] : 0.0f;
#pragma unroll
            for (int d = 0; d < most_dims; ++d) {
                if (col + d * 16 < values) o.put(h.result(batch, head, query) + col + d * 16, out[i][d] * by);
            }
            if (col == 0) lse[s.statistic(batch, head, query)] = top[i] + logf(total[i]);
        }
    }
};

/// The four tiles of 32 rows, scores and their slopes for both gradients; 16 x 16 threads of 2 x 2 scores.
template <int most_dims, bool indexed>
struct AttentionGradTile {
    static constexpr int side = 32, each = 2;
    Heads<indexed> all;
    AnyIn q, k, v, o, d_o;
    const float* lse;
    const float* mean;  ///< [b, h, i]: d_o . o of each query, less d_lse
    i64 tiles;

    static i64 shared_bytes(const Attention& s) {
        return side * (2 * (s.head_dim + 1) + 2 * (s.values() + 1) + 2 * (side + 1)) * 4;
    }

    /// ps = softmax, ds = its slope, of queries first_q.. and keys first_k..
    ORRERY_DEVICE void scores(const Block& b, const Tile (&t)[6], const Heads<indexed>& h, i64 batch, i64 head,
                              i64 first_q, i64 first_k) const {
        const Attention& s = h.s;
        const int dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
        const int row = b.thread() / 16 * each, col = b.thread() % 16, both = dim < values ? dim : values;
        float score[each][each] = {}, slope[each][each] = {};
        for (int d = 0; d < both; ++d) {
#pragma unroll
            for (int i = 0; i < each; ++i) {
#pragma unroll
                for (int j = 0; j < each; ++j) {
                    score[i][j] += t[0].at(row + i, d) * t[2].at(col + j * 16, d);
                    slope[i][j] += t[1].at(row + i, d) * t[3].at(col + j * 16, d);
                }
            }
        }
        const auto rest = [&](float(&to)[each][each], const Tile& x, const Tile& y, int end) {
            for (int d = both; d < end; ++d) {
#pragma unroll
                for (int i = 0; i < each; ++i) {
#pragma unroll
                    for (int j = 0; j < each; ++j) to[i][j] += x.at(row + i, d) * y.at(col + j * 16, d);
                }
            }
        };
        rest(score, t[0], t[2], dim);
        rest(slope, t[1], t[3], values);
#pragma unroll
        for (int i = 0; i < each; ++i) {
            const i64 query = first_q + row + i;
            const bool there = query < s.queries;
            const Sight<indexed> by(h, batch, query);
            const i64 at = there ? s.statistic(batch, head, query) : 0;
            const float scale = static_cast<float>(s.scale), top = lse[at], middle = mean[at];
#pragma unroll
            for (int j = 0; j < each; ++j) {
                const bool sees = by.sees(h, batch, first_k + col + j * 16);
                const float p = sees ? expf(score[i][j] * scale - top) : 0.0f;
                t[4].at(row + i, col + j * 16) = p;
                t[5].at(row + i, col + j * 16) = sees ? p * (slope[i][j] - middle) * scale : 0.0f;
            }
        }
    }
    /// Splits shared memory: tiles of q, d_o, k, v, then scores and slopes.
    ORRERY_DEVICE void cut(const Block& b, Tile (&t)[6]) const {
        const int pitch = static_cast<int>(all.s.head_dim) + 1, values = static_cast<int>(all.s.values()) + 1;
        t[0] = {b.shared<float>(), pitch};
        t[1] = {t[0].data + side * pitch, values};
        t[2] = {t[1].data + side * values, pitch};
        t[3] = {t[2].data + side * pitch, values};
        t[4] = {t[3].data + side * values, side + 1};
        t[5] = {t[4].data + side * (side + 1), side + 1};
    }
};

/// dq of 32 queries of one head.
template <int most_dims, bool indexed>
struct QueryGrad : AttentionGradTile<most_dims, indexed> {
    using Base = AttentionGradTile<most_dims, indexed>;
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    AnyOut dq;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const Attention& s = this->all.s;
        const int dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
        const int row = b.thread() / 16 * Base::each, col = b.thread() % 16;
        const i64 first = (this->tiles - 1 - b.index() % this->tiles) * Base::side;
        const i64 head = b.index() / this->tiles % s.heads, batch = b.index() / this->tiles / s.heads;
        const i64 group = head / (s.heads / s.groups);
        const Heads<indexed> h = this->all.part(batch);
        Tile t[6];
        this->cut(b, t);
        const auto at_query = [&](i64 i) { return h.query(batch, head, i); };
        const auto at_key = [&](i64 j) { return h.key(batch, group, j); };
        load_tile(b, t[0], this->q, Base::side, first, s.queries, dim, at_query);
        load_tile(b, t[1], this->d_o, Base::side, first, s.queries, values,
                  [&](i64 i) { return h.result(batch, head, i); });
        const i64 last = first + Base::side < s.queries ? first + Base::side : s.queries;
        const i64 keys = h.visible(last - 1);
        float sum[Base::each][most_dims] = {};
        for (i64 from = h.first_key(first) / Base::side * Base::side; from < keys; from += Base::side) {
            if (!h.meet(batch, first, from, Base::side)) continue;
            b.sync();
            load_tile(b, t[2], this->k, Base::side, from, s.keys, dim, at_key);
            load_tile(b, t[3], this->v, Base::side, from, s.keys, values,
                      [&](i64 j) { return h.value(batch, group, j); });
            b.sync();
            this->scores(b, t, h, batch, head, first, from);
            b.sync();
            for (int j = 0; j < Base::side; ++j) {
#pragma unroll
                for (int d = 0; d < most_dims; ++d) {
                    if (col + d * 16 >= dim) continue;
#pragma unroll
                    for (int i = 0; i < Base::each; ++i) sum[i][d] += t[5].at(row + i, j) * t[2].at(j, col + d * 16);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < Base::each; ++i) {
            const i64 query = first + row + i;
#pragma unroll
            for (int d = 0; d < most_dims; ++d) {
                if (query < s.queries && col + d * 16 < dim) dq.put(at_query(query) + col + d * 16, sum[i][d]);
            }
        }
    }
};

/// dk and dv of 32 keys of one group: all queries of its heads, in order.
template <int most_dims, bool indexed>
struct KeyGrad : AttentionGradTile<most_dims, indexed> {
    using Base = AttentionGradTile<most_dims, indexed>;
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    AnyOut dk, dv;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const Attention& s = this->all.s;
        const int dim = static_cast<int>(s.head_dim), values = static_cast<int>(s.values());
        const int row = b.thread() / 16 * Base::each, col = b.thread() % 16;
        const i64 first = b.index() % this->tiles * Base::side, group = b.index() / this->tiles % s.groups;
        const i64 batch = b.index() / this->tiles / s.groups, heads = s.heads / s.groups;
        const Heads<indexed> h = this->all.part(batch);
        Tile t[6];
        this->cut(b, t);
        const auto at_key = [&](i64 j) { return h.key(batch, group, j); };
        const auto at_value = [&](i64 j) { return h.value(batch, group, j); };
        load_tile(b, t[2], this->k, Base::side, first, s.keys, dim, at_key);
        load_tile(b, t[3], this->v, Base::side, first, s.keys, values, at_value);
        const i64 last = (first + Base::side < s.keys ? first + Base::side : s.keys) - 1;
        const i64 begin = h.first_query(first) / Base::side * Base::side, end = h.end_query(last);
        float of_k[Base::each][most_dims] = {}, of_v[Base::each][most_dims] = {};
        for (i64 head = group * heads; head < (group + 1) * heads; ++head) {
            const auto at_query = [&](i64 i) { return h.query(batch, head, i); };
            for (i64 from = begin; from < end; from += Base::side) {
                if (!h.meet(batch, from, first, Base::side)) continue;
                b.sync();
                load_tile(b, t[0], this->q, Base::side, from, s.queries, dim, at_query);
                load_tile(b, t[1], this->d_o, Base::side, from, s.queries, values,
                          [&](i64 i) { return h.result(batch, head, i); });
                b.sync();
                this->scores(b, t, h, batch, head, from, first);
                b.sync();
                for (int i = 0; i < Base::side; ++i) {
#pragma unroll
                    for (int d = 0; d < most_dims; ++d) {
                        const int e = col + d * 16;
#pragma unroll
                        for (int j = 0; j < Base::each; ++j) {
                            if (e < dim) of_k[j][d] += t[5].at(i, row + j) * t[0].at(i, e);
                            if (e < values) of_v[j][d] += t[4].at(i, row + j) * t[1].at(i, e);
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < Base::each; ++j) {
            const i64 key = first + row + j;
#pragma unroll
            for (int d = 0; d < most_dims; ++d) {
                const int e = col + d * 16;
                if (key < s.keys && e < dim) dk.put(at_key(key) + e, of_k[j][d]);
                if (key < s.keys && e < values) dv.put(at_value(key) + e, of_v[j][d]);
            }
        }
    }
};

/// mean[b, h, i] = d_o . o of each query, less d_lse where there is one; a warp each.
struct DotRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Attention s;
    AnyIn o, d_o;
    const float* d_lse;
    float* mean;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 row = b.index() * (threads / 32) + b.thread() / 32, n = s.batch * s.queries * s.heads;
        const i64 dim = s.values();
        float sum = 0;
        for (i64 d = b.thread() % 32; row < n && d < dim; d += 32) sum += o.at(row * dim + d) * d_o.at(row * dim + d);
        sum = b.sum(sum, 32);
        if (row >= n || b.thread() % 32 != 0) return;
        const i64 batch = row / s.heads / s.queries, query = row / s.heads % s.queries;
        const i64 at = s.statistic(batch, row % s.heads, query);
        mean[at] = d_lse == nullptr ? sum : sum - d_lse[at];
    }
};

AnyIn tiled(In x, i64 dim) { return AnyIn(x, aligned_rows(x.data, x.type, dim)); }

/// Heads of s; by index with the bounds of all tiles, made in scratch first.
template <bool indexed>
Heads<indexed> heads_of(Call& call, const Attention& s, const AttentionIndex& at) {
    if constexpr (!indexed) {
        return {s};
    } else {
        const i64 queries = s.batch * divide_up(s.queries, bound_rows), keys = s.batch * divide_up(s.keys, bound_rows);
        auto* of_queries = call.take_array<Bounds>(queries);
        auto* of_keys = call.take_array<Bounds>(keys);
        launch(call, divide_up(queries, BoundTiles::threads),
               BoundTiles{s, at.documents, at.positions, false, of_queries});
        launch(call, divide_up(keys, BoundTiles::threads),
               BoundTiles{s, at.key_documents, at.key_positions, true, of_keys});
        return {s, at, of_queries, of_keys};
    }
}

/// Calls go(elements, indexed) with two compile-time constants: the elements of a head that a thread has, and whether
/// documents and positions decide which keys a query sees.
template <class F>
void with_form(const Attention& s, F go) {
    if (larger_dim(s) > most_head_dim) throw std::logic_error("attention over heads of more than 256 elements");
    const auto sized = [&]<bool indexed>(std::bool_constant<indexed> by) {
        larger_dim(s) <= 128 ? go(std::integral_constant<int, 8>(), by) : go(std::integral_constant<int, 16>(), by);
    };
    s.indexed ? sized(std::true_type()) : sized(std::false_type());
}

void attention(kernels::Context& context, const Attention& s, In q, In k, In v, const AttentionIndex& at, Out o,
               Out lse) {
    Call& call = call_of(context);
    const i64 tiles = divide_up(s.queries, 64);
    with_form(s, [&]<int most, bool indexed>(std::integral_constant<int, most>, std::bool_constant<indexed>) {
        const AttentionTile<most, indexed> body{heads_of<indexed>(call, s, at),
                                                tiled(q, s.head_dim),
                                                tiled(k, s.head_dim),
                                                tiled(v, s.values()),
                                                AnyOut(o, false),
                                                static_cast<float*>(lse.data),
                                                tiles};
        launch(call, s.batch * s.heads * tiles, body, body.shared_bytes(s));
    });
}

void attention_grad(kernels::Context& context, const Attention& s, In q, In k, In v, In o, In lse, In d_o,
                    const AttentionIndex& at, In d_lse, Out dq, Out dk, Out dv) {
    Call& call = call_of(context);
    const i64 rows = s.batch * s.queries * s.heads;
    float* mean = call.take_array<float>(rows);
    launch(call, divide_up(rows, 8),
           DotRows{s, AnyIn(o, false), AnyIn(d_o, false), static_cast<const float*>(d_lse.data), mean});
    with_form(s, [&]<int most, bool indexed>(std::integral_constant<int, most>, std::bool_constant<indexed>) {
        AttentionGradTile<most, indexed> base{heads_of<indexed>(call, s, at),
                                              tiled(q, s.head_dim),
                                              tiled(k, s.head_dim),
                                              tiled(v, s.values()),
                                              tiled(o, s.values()),
                                              tiled(d_o, s.values()),
                                              static_cast<const float*>(lse.data),
                                              mean,
                                              divide_up(s.queries, 32)};
        const i64 shared = base.shared_bytes(s);
        launch(call, s.batch * s.heads * base.tiles, QueryGrad<most, indexed>{base, AnyOut(dq, false)}, shared);
        base.tiles = divide_up(s.keys, 32);
        launch(call, s.batch * s.groups * base.tiles,
               KeyGrad<most, indexed>{base, AnyOut(dk, false), AnyOut(dv, false)}, shared);
    });
}

}  // namespace

void add_attention(Kernels& k) {
    k.attention = attention;
    k.attention_grad = attention_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
