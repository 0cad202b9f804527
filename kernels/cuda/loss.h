// Softmax and cross entropy: a block a row, which is read twice (the second time out of the cache) and written once.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// A row of any length at any address, cut into runs so that all but the first and last begin at multiples of 16 bytes.
template <class T>
struct Row {
    const T* data;
    i64 cols;
    i64 skip;  ///< elements of the first run that lie before the row

    ORRERY_DEVICE Row(const T* row, i64 n)
        : data(row), cols(n), skip(static_cast<i64>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T))) {}
    ORRERY_DEVICE i64 runs() const { return (cols + skip + run - 1) / run; }
    /// The column of the first element of run r; negative in front of the row.
    ORRERY_DEVICE i64 column(i64 r) const { return r * run - skip; }
    ORRERY_DEVICE void load(i64 r, float (&v)[run], float outside) const {
        const i64 c = column(r);
        if (c >= 0 && c + run <= cols) return load_run(data + c, run, true, v);
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = c + l >= 0 && c + l < cols ? widen(data[c + l]) : outside;
    }
    /// Into a row of the same length whose address is alike modulo 16.
    ORRERY_DEVICE void store(T* to, i64 r, const float (&v)[run]) const {
        const i64 c = column(r);
        const bool alike = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(data)) % 16 == 0;
        if (alike && c >= 0 && c + run <= cols) return store_run(to + c, run, true, v);
#pragma unroll
        for (int l = 0; l < run; ++l) {
            if (c + l >= 0 && c + l < cols) narrow(v[l], to[c + l]);
        }
    }
};

/// The largest element of a row and the sum of exp(x - top), by all threads of a block.
template <class T>
ORRERY_DEVICE void row_statistics(const Block& b, const Row<T>& row, float& top, float& total) {
    float most = -INFINITY, sum = 0;
    for (i64 r = b.thread(); r < row.runs(); r += b.threads()) {
        float v[run], here = most;
        row.load(r, v, -INFINITY);
#pragma unroll
        for (int l = 0; l < run; ++l) here = Block::larger(here, v[l]);
        if (here == -INFINITY) continue;
        sum *= expf(most - here);
#pragma unroll
        for (int l = 0; l < run; ++l) sum += expf(v[l] - here);
        most = here;
    }
    top = block_max(b, most, b.shared<float>());
    const float factor = most == -INFINITY ? 0.0f : expf(most - top);
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
        for (i64 r = b.thread(); r < row.runs(); r += b.threads()) {
            float v[run];
            row.load(r, v, 0);
#pragma unroll
            for (int l = 0; l < run; ++l) v[l] = expf(v[l] - top) / total;
            row.store(y + b.index() * cols, r, v);
        }
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
        for (i64 r = b.thread(); r < row.runs(); r += b.threads()) {
            float p[run], d[run];
            row.load(r, p, 0);
            load(row, slope, r, d);
#pragma unroll
            for (int l = 0; l < run; ++l) dot += p[l] * d[l];
        }
        dot = block_sum(b, dot, b.shared<float>());
        for (i64 r = b.thread(); r < row.runs(); r += b.threads()) {
            float p[run], d[run];
            row.load(r, p, 0);
            load(row, slope, r, d);
#pragma unroll
            for (int l = 0; l < run; ++l) d[l] = p[l] * (d[l] - dot);
            row.store(dx + b.index() * cols, r, d);
        }
    }
    /// The same columns of another row, which may lie at another address modulo 16.
    ORRERY_DEVICE void load(const Row<T>& like, const T* from, i64 r, float (&v)[run]) const {
        const i64 c = like.column(r);
        const bool alike =
            (reinterpret_cast<std::uintptr_t>(from) - reinterpret_cast<std::uintptr_t>(like.data)) % 16 == 0;
        if (alike && c >= 0 && c + run <= cols) return load_run(from + c, run, true, v);
#pragma unroll
        for (int l = 0; l < run; ++l) v[l] = c + l >= 0 && c + l < cols ? widen(from[c + l]) : 0.0f;
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

/// What cross entropy knows of a row.
struct Target {
    std::int32_t token;
    bool counts, held;  ///< not ignored; its logit is in this shard
    i64 column;
    ORRERY_DEVICE Target(const VocabShard& s, const std::int32_t* targets, i64 row)
        : token(targets[row]), counts(token != s.ignore), column(token - s.start) {
        held = counts && column >= 0 && column < s.cols;
    }
    ORRERY_DEVICE bool outside(const VocabShard& s) const { return token < 0 || token >= s.vocab; }
};

/// dlogits = by (exp(logit - top) / total - onehot) of one row, 0 where it does not count.
template <class T>
ORRERY_DEVICE void slope_row(const Block& b, const Row<T>& row, T* to, const Target& target, float top, float total,
                             float by) {
    const float factor = target.counts ? by / total : 0.0f;
    for (i64 r = b.thread(); r < row.runs(); r += b.threads()) {
        float v[run];
        row.load(r, v, 0);
        const i64 c = row.column(r);
#pragma unroll
        for (int l = 0; l < run; ++l) {
            v[l] = target.counts ? factor * expf(v[l] - top) : 0.0f;
            if (target.held && c + l == target.column) v[l] -= by;
        }
        row.store(to, r, v);
    }
}

/// One block a row: its loss, and dlogits where they are asked for.
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
        if (dlogits != nullptr) slope_row(b, row, dlogits + at, target, top, total, scale != nullptr ? *scale : 1.0f);
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
    AnyIn top, total, picked;  ///< with losses absent
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
        *loss = sum;
        *count = counted;
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
        for (i64 r = b.thread(); target.counts && r < row.runs(); r += b.threads()) {
            float v[run];
            row.load(r, v, -INFINITY);
#pragma unroll
            for (int l = 0; l < run; ++l) sum += expf(v[l] - most);
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
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 at = b.index() * shard.cols;
        slope_row(b, Row<T>(logits + at, shard.cols), dlogits + at, Target(shard, targets, b.index()),
                  top.at(b.index()), total.at(b.index()), scale != nullptr ? *scale : 1.0f);
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

}  // namespace

void add_loss(Kernels& k) {
    k.softmax = softmax;
    k.softmax_grad = softmax_grad;
    k.cross_entropy = cross_entropy;
    k.cross_entropy_stats = cross_entropy_stats;
    k.cross_entropy_loss = cross_entropy_loss;
    k.cross_entropy_grad = cross_entropy_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
