// Softmax and cross entropy: a block a row, which is read twice (the second time from the cache) and written once; the
// loss in tiles, with matrix products of others.
#pragma once

#include <cmath>

#include "kernels/cuda/rules.h"
#include "kernels/cuda/run.h"
#include "kernels/tiled_loss.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr float log2_e = 1.4426950408889634f;

/// 2^x to 2 units of the last place; 0 below 2^-126. exp(v - top) = power2(v log2_e - top log2_e): one rounded product,
/// the same for all of a row, so quotients of sums lose no precision.
ORRERY_DEVICE float power2(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/// A row of any length at any address, split into runs so that all but the first and last begin at multiples of 16
/// bytes.
template <class T>
struct Row {
    const T* data;
    i64 cols;
    i64 skip;  ///< elements of the first run that are before the row

    ORRERY_DEVICE Row(const T* row, i64 n)
        : data(row), cols(n), skip(static_cast<i64>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T))) {}
    ORRERY_DEVICE i64 runs() const { return (cols + skip + run - 1) / run; }
    /// The column of the first element of run r; negative before the row.
    ORRERY_DEVICE i64 column(i64 r) const { return r * run - skip; }
    /// Whether a row of the same length has its runs at the same columns.
    ORRERY_DEVICE bool alike(const T* other) const {
        return (reinterpret_cast<std::uintptr_t>(other) - reinterpret_cast<std::uintptr_t>(data)) % 16 == 0;
    }
    /// Loads single elements of run r; `from` may have any address.
    ORRERY_DEVICE void collect(const T* from, i64 c, float (&v)[run], float outside) const {
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = c + l >= 0 && c + l < cols ? widen(from[c + l]) : outside;
    }
    /// Stores to a row of the same length.
    ORRERY_DEVICE void store(T* to, i64 c, const float (&v)[run]) const {
        if (alike(to) && c >= 0 && c + run <= cols) return store_run(to + c, v);
#pragma unroll
        for (int l = 0; l < run; ++l) {
            if (c + l >= 0 && c + l < cols) narrow(v[l], to[c + l]);
        }
    }
};

/// Calls f(column, runs of the rows...) for this thread's runs of one or two rows, with several loads in flight.
/// Columns before and after the row are `outside`.
template <class T, int n, class F>
ORRERY_DEVICE void each_run(const Block& b, const Row<T>& row, const T* const (&from)[n], float outside, F f) {
    constexpr int at_once = n == 1 ? 4 : 2;
    const i64 step = b.threads(), runs = row.runs();
    const i64 first = row.skip > 0 ? 1 : 0, end = n == 1 || row.alike(from[n - 1]) ? (row.cols + row.skip) / run : 0;
    float v[n][run];
    for (i64 r = b.thread(); r < runs;) {
        const i64 c = row.column(r);
        if (r >= first && r + (at_once - 1) * step < end) {
            Packed<T> packed[at_once][n];
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
#pragma unroll
                for (int j = 0; j < n; ++j) fetch(from[j] + c + k * step * run, packed[k][j]);
            }
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
#pragma unroll
                for (int j = 0; j < n; ++j) unpack(packed[k][j], v[j]);
                f(c + k * step * run, v);
            }
            r += at_once * step;
        } else {
#pragma unroll
            for (int j = 0; j < n; ++j) {
                if (r >= first && r < end)
                    load_run(from[j] + c, run, true, v[j]);
                else
                    row.collect(from[j], c, v[j], outside);
            }
            f(c, v);
            r += step;
        }
    }
}

/// The maximum of a row and the sum of exp(x - top), by all threads of a block.
template <class T>
ORRERY_DEVICE void row_statistics(const Block& b, const Row<T>& row, float& top, float& total) {
    float most = -INFINITY, sum = 0;
    each_run(b, row, {row.data}, -INFINITY, [&](i64, const float(&v)[1][run]) {
        float here = most;
#pragma unroll
        for (int l = 0; l < run; ++l) here = Block::larger(here, v[0][l]);
        if (here == -INFINITY) return;
        const float base = -here * log2_e;
        sum *= power2(fmaf(most, log2_e, base));
#pragma unroll
        for (int l = 0; l < run; ++l) sum += power2(fmaf(v[0][l], log2_e, base));
        most = here;
    });
    top = block_max(b, most, b.shared<float>());
    const float factor = most == -INFINITY ? 0.0f : power2(fmaf(most, log2_e, -top * log2_e));
    total = block_sum(b, sum * factor, b.shared<float>());
}

int row_threads(i64 cols) {
    return cols >= 8192 ? 512 : cols >= 2048 ? 256 : cols >= 1024 ? 128 : cols >= 512 ? 64 : 32;
}

template <class T>
struct Softmax {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    const T* x;
    T* y;
    i64 cols;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const Row<T> row(x + b.index() * cols, cols);
        float top, total;
        row_statistics(b, row, top, total);
        const float base = -top * log2_e, by = 1.0f / total;
        each_run(b, row, {row.data}, 0.0f, [&](i64 c, float(&v)[1][run]) {
#pragma unroll
            for (int l = 0; l < run; ++l) v[0][l] = power2(fmaf(v[0][l], log2_e, base)) * by;
            row.store(y + b.index() * cols, c, v[0]);
        });
    }
};

template <class T>
struct SoftmaxGrad {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    const T *y, *dy;
    T* dx;
    i64 cols;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const Row<T> row(y + b.index() * cols, cols);
        const T* slope = dy + b.index() * cols;
        float dot = 0;
        each_run(b, row, {row.data, slope}, 0.0f, [&](i64, const float(&v)[2][run]) {
#pragma unroll
            for (int l = 0; l < run; ++l) dot += v[0][l] * v[1][l];
        });
        dot = block_sum(b, dot, b.shared<float>());
        each_run(b, row, {row.data, slope}, 0.0f, [&](i64 c, float(&v)[2][run]) {
#pragma unroll
            for (int l = 0; l < run; ++l) v[1][l] = v[0][l] * (v[1][l] - dot);
            row.store(dx + b.index() * cols, c, v[1]);
        });
    }
};

void softmax(kernels::Context& context, In x, Out y, i64 rows, i64 cols) {
    if (cols == 0) return;
    visit_float(x.type, [&]<class T>(T*) {
        launch(call_of(context), rows, Softmax<T>{static_cast<const T*>(x.data), static_cast<T*>(y.data), cols}, 32 * 4,
               row_threads(cols));
    });
}

void softmax_grad(kernels::Context& context, In y, In dy, Out dx, i64 rows, i64 cols) {
    if (cols == 0) return;
    visit_float(y.type, [&]<class T>(T*) {
        const SoftmaxGrad<T> body{static_cast<const T*>(y.data), static_cast<const T*>(dy.data),
                                  static_cast<T*>(dx.data), cols};
        launch(call_of(context), rows, body, 32 * 4, row_threads(cols));
    });
}

/// The target of a row in cross entropy.
struct Target {
    std::int32_t token;
    bool counts, held;  ///< counts: not ignored; held: its logit is in this shard
    i64 column;
    ORRERY_DEVICE Target(const VocabShard& s, const std::int32_t* targets, i64 row)
        : token(targets[row]), counts(token != s.ignore), column(token - s.start) {
        held = counts && column >= 0 && column < s.cols;
    }
    ORRERY_DEVICE bool outside(const VocabShard& s) const { return token < 0 || token >= s.vocab; }
};

/// dlogits = by (exp(logit - top) / total - onehot) of one row, 0 if it does not count.
template <class T>
ORRERY_DEVICE void slope_row(const Block& b, const Row<T>& row, T* to, const Target& target, float top, float total,
                             float by) {
    const float factor = target.counts ? by / total : 0.0f, base = -top * log2_e;
    const i64 held = target.held ? target.column : -run;
    each_run(b, row, {row.data}, 0.0f, [&](i64 c, float(&v)[1][run]) {
        const i64 away = held - c;
        const int lane = away >= 0 && away < run ? static_cast<int>(away) : run;
#pragma unroll
        for (int l = 0; l < run; ++l) {
            v[0][l] = target.counts ? factor * power2(fmaf(v[0][l], log2_e, base)) : 0.0f;
            if (l == lane) v[0][l] -= by;
        }
        row.store(to, c, v[0]);
    });
}

/// One block a row: its loss, and dlogits when requested.
template <class T>
struct CrossEntropy {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    const T* logits;
    const std::int32_t* targets;
    const float* scale;
    T* dlogits;
    float* losses;  ///< [rows], 0 for ignored ones
    VocabShard shard;
    float by = 1;  ///< the scale if there is no pointer to one
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 at = b.index() * shard.cols;
        const Row<T> row(logits + at, shard.cols);
        const Target target(shard, targets, b.index());
        float top = 0, total = 1;
        if (target.counts) row_statistics(b, row, top, total);
        if (b.thread() == 0) {
            const float picked = target.held ? widen(logits[at + target.column]) : NAN;
            losses[b.index()] = target.counts ? top - picked + logf(total) : 0.0f;
        }
        b.sync();  // the target's logit has been read
        if (dlogits != nullptr) slope_row(b, row, dlogits + at, target, top, total, scale != nullptr ? *scale : by);
    }
};

/// loss and count from one number a row; one block, in a fixed order.
struct TotalLoss {
    static constexpr int threads = 1024;
    static constexpr bool barriers = true;
    const float* losses;
    const std::int32_t* targets;
    float *loss, *count;
    i64 rows;
    std::int32_t ignore;
    AnyIn top, total, picked;  ///< when losses is absent
    bool accumulate = false;
    ORRERY_DEVICE void operator()(const Block& b) const {
        float sum = 0, counted = 0;
        for (i64 r = b.thread(); r < rows; r += b.threads()) {
            if (targets[r] == ignore) continue;
            counted += 1;
            sum += losses != nullptr ? losses[r] : top.at(r) - picked.at(r) + logf(total.at(r));
        }
        sum = block_sum(b, sum, b.shared<float>());
        counted = block_sum(b, counted, b.shared<float>());
        if (b.thread() != 0) return;
        *loss = accumulate ? *loss + sum : sum;
        *count = accumulate ? *count + counted : counted;
    }
};

int total_threads(i64 rows) { return rows > 1024 ? 1024 : rows > 256 ? 256 : 64; }

void cross_entropy(kernels::Context& context, In logits, const std::int32_t* targets, In scale, Out loss, Out count,
                   Out dlogits, i64 rows, i64 vocab, std::int32_t ignore) {
    Call& call = call_of(context);
    float* losses = call.take_array<float>(rows);
    visit_float(logits.type, [&]<class T>(T*) {
        const CrossEntropy<T> body{static_cast<const T*>(logits.data), targets, static_cast<const float*>(scale.data),
                                   static_cast<T*>(dlogits.data),      losses,  {rows, vocab, 0, vocab, ignore}};
        launch(call, rows, body, 32 * 4, row_threads(vocab));
    });
    const TotalLoss body{
        losses, targets, static_cast<float*>(loss.data), static_cast<float*>(count.data), rows, ignore, {}, {}, {}};
    launch(call, 1, body, 32 * 4, total_threads(rows));
}

template <class T>
struct ShardStats {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    const T* logits;
    AnyIn top;
    const std::int32_t* targets;
    float *total, *picked;
    VocabShard shard;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 at = b.index() * shard.cols;
        const Row<T> row(logits + at, shard.cols);
        const Target target(shard, targets, b.index());
        const float most = top.at(b.index());
        float sum = 0;
        if (target.counts) {
            const float base = -most * log2_e;
            each_run(b, row, {row.data}, -INFINITY, [&](i64, const float(&v)[1][run]) {
#pragma unroll
                for (int l = 0; l < run; ++l) sum += power2(fmaf(v[0][l], log2_e, base));
            });
        }
        sum = block_sum(b, sum, b.shared<float>());
        if (b.thread() != 0) return;
        total[b.index()] = target.counts ? sum : 0.0f;
        float own = target.held ? widen(logits[at + target.column]) : 0.0f;
        if (target.counts && target.outside(shard)) own = NAN;
        picked[b.index()] = own;
    }
};

void cross_entropy_stats(kernels::Context& context, const VocabShard& s, In logits, In top, const std::int32_t* targets,
                         Out total, Out picked) {
    visit_float(logits.type, [&]<class T>(T*) {
        const ShardStats<T> body{static_cast<const T*>(logits.data),
                                 AnyIn(top, false),
                                 targets,
                                 static_cast<float*>(total.data),
                                 static_cast<float*>(picked.data),
                                 s};
        launch(call_of(context), s.rows, body, 32 * 4, row_threads(s.cols));
    });
}

void cross_entropy_loss(kernels::Context& context, In top, In total, In picked, const std::int32_t* targets, Out loss,
                        Out count, i64 rows, std::int32_t ignore) {
    const TotalLoss body{nullptr,
                         targets,
                         static_cast<float*>(loss.data),
                         static_cast<float*>(count.data),
                         rows,
                         ignore,
                         AnyIn(top, false),
                         AnyIn(total, false),
                         AnyIn(picked, false)};
    launch(call_of(context), 1, body, 32 * 4, total_threads(rows));
}

template <class T>
struct ShardGrad {
    static constexpr int threads = 512;
    static constexpr bool barriers = false;
    const T* logits;
    AnyIn top, total;
    const std::int32_t* targets;
    const float* scale;
    T* dlogits;
    VocabShard shard;
    float by = 1;  ///< the scale if there is no pointer to one
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 at = b.index() * shard.cols;
        slope_row(b, Row<T>(logits + at, shard.cols), dlogits + at, Target(shard, targets, b.index()),
                  top.at(b.index()), total.at(b.index()), scale != nullptr ? *scale : by);
    }
};

void cross_entropy_grad(kernels::Context& context, const VocabShard& s, In logits, In top, In total,
                        const std::int32_t* targets, In scale, Out dlogits) {
    visit_float(logits.type, [&]<class T>(T*) {
        const ShardGrad<T> body{static_cast<const T*>(logits.data),
                                AnyIn(top, false),
                                AnyIn(total, false),
                                targets,
                                static_cast<const float*>(scale.data),
                                static_cast<T*>(dlogits.data),
                                s};
        launch(call_of(context), s.rows, body, 0, row_threads(s.cols));
    });
}

/// One block a row and block of columns: the log of its sum of exponentials.
template <class T>
struct BlockStats {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    const T* logits;
    const std::int32_t* targets;
    float *lse, *picked;  ///< of the tile's rows
    VocabShard shard;
    i64 blocks;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 r = b.index() / blocks, part = b.index() % blocks, size = shard.cols / blocks;
        const Row<T> row(logits + r * shard.cols + part * size, size);
        const Target target(shard, targets, r);
        float top = 0, total = 1;
        if (target.counts) row_statistics(b, row, top, total);
        if (b.thread() != 0) return;
        lse[b.index()] = top == -INFINITY ? top : top + logf(total);
        if (part != 0) return;
        float own = target.held ? widen(logits[r * shard.cols + target.column]) : 0.0f;
        if (target.counts && target.outside(shard)) own = NAN;
        picked[r] = own;
    }
};

template <class T>
T* rows_from(Out y, i64 at) {
    return y.data == nullptr ? nullptr : static_cast<T*>(y.data) + at;
}

template <class T>
void tile_rows(Call& call, const TiledLoss& s, const TiledLossData& t, i64 first, i64 n, Out logits, float* losses) {
    using Part = TiledLoss::Part;
    T* const data = static_cast<T*>(logits.data);
    const std::int32_t* const targets = t.targets == nullptr ? nullptr : t.targets + first;
    const auto by = static_cast<float>(tile_scale(logits.type));
    if (s.part == Part::whole) {
        float* const own = losses == nullptr ? nullptr : losses + first;
        const CrossEntropy<T> body{data, targets, nullptr, s.gradients ? data : nullptr, own, s.shard(n), by};
        launch(call, n, body, 32 * 4, row_threads(s.cols));
    } else if (s.part == Part::statistics) {
        const BlockStats<T> body{
            data,       targets, rows_from<float>(t.lse, first * s.blocks), rows_from<float>(t.picked, first),
            s.shard(n), s.blocks};
        launch(call, n * s.blocks, body, 32 * 4, row_threads(s.cols / s.blocks));
    } else {
        const ShardGrad<T> body{data,
                                AnyIn(from(t.top, first), false),
                                AnyIn(from(t.total, first), false),
                                targets,
                                nullptr,
                                data,
                                s.shard(n),
                                by};
        launch(call, n, body, 0, row_threads(s.cols));
    }
}

void own_product(Call& call, const Matmul& p, In a, In b, In bias, Out y) { table().matmul(call, p, a, b, bias, y); }

}  // namespace

void tiled_loss(Call& call, const TiledLoss& s, const TiledLossData& t, const TileProduct& product) {
    float* const losses = call.take_array<float>(s.part == TiledLoss::Part::whole ? s.rows : 0);
    const i64 tile = s.tile < s.rows ? s.tile : s.rows;
    const Out logits(call.take(tile * s.cols * size_of(t.x.type)), t.x.type);
    const i64 taken = call.used;  // the steps below take turns in the rest
    i64 most = taken;
    const auto in_turn = [&](auto step) {
        step();
        most = call.used > most ? call.used : most;
        call.used = taken;
    };
    const double by = tile_scale(t.x.type);
    const bool scaled = s.gradients && by != 1;
    const i64 head = s.width * s.cols;
    const auto scale = [&](Out y, i64 n, double factor) { in_turn([&] { table().scale(call, y, y, n, factor); }); };
    if (scaled && s.accumulate) {  // tiles add scaled gradients, so the old sum is scaled first
        scale(t.dhead, head, by);
        if (s.bias_gradient) scale(t.dbias, s.cols, by);
    }
    each_tile(
        s, t, logits,
        [&](const Matmul& p, In a, In b, In bias, Out y) { in_turn([&] { product(call, p, a, b, bias, y); }); },
        [&](i64 first, i64 n, Out made) {
            visit_float(made.type, [&]<class T>(T*) { tile_rows<T>(call, s, t, first, n, made, losses); });
            if (!s.bias_gradient) return;
            const i64 shape[] = {n, s.cols};
            in_turn([&] {
                table().reduce(call, Reduce::sum, made, Shape(shape, 2), 1, t.dbias, s.accumulate || first > 0);
            });
        });
    if (s.part == TiledLoss::Part::whole) {
        const TotalLoss body{losses,
                             t.targets,
                             static_cast<float*>(t.loss.data),
                             static_cast<float*>(t.count.data),
                             s.rows,
                             s.ignore,
                             {},
                             {},
                             {},
                             s.accumulate};
        launch(call, 1, body, 32 * 4, total_threads(s.rows));
    }
    if (scaled) {
        scale(t.dx, s.rows * s.width, 1 / by);
        scale(t.dhead, head, 1 / by);
        if (s.bias_gradient) scale(t.dbias, s.cols, 1 / by);
    }
    call.used = most;
}

void add_loss(Kernels& k) {
    k.softmax = softmax;
    k.softmax_grad = softmax_grad;
    k.cross_entropy = cross_entropy;
    k.cross_entropy_stats = cross_entropy_stats;
    k.cross_entropy_loss = cross_entropy_loss;
    k.cross_entropy_grad = cross_entropy_grad;
    k.tiled_loss = [](kernels::Context& c, const TiledLoss& s, const TiledLossData& t) {
        tiled_loss(call_of(c), s, t, own_product);
    };
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
