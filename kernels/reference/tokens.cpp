#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/values.h"
#include "kernels/tiled_loss.h"

namespace orrery::kernels::reference {

namespace {

void embedding(Context&, const Embedding& s, const std::int32_t* tokens, In table, Out y) {
    const Values t = read(table, s.rows * s.cols);
    Values v(static_cast<size_t>(s.tokens * s.cols));
    for (i64 i = 0; i < s.tokens; ++i) {
        const i64 row = tokens[i] - s.start;
        if (row < 0 || row >= s.rows) continue;
        for (i64 c = 0; c < s.cols; ++c) v[i * s.cols + c] = t[row * s.cols + c];
    }
    write(y, v);
}

/// The gradient adds rows of dy by token.
void embedding_grad(Context& c, const Embedding& s, const std::int32_t* tokens, In dy, Out dtable) {
    table().scatter_add(c, picks_of(s), dy, tokens, dtable);
}

void rope(Context& c, const Rope& s, In x, const std::int32_t* positions, Out y) {
    c.scratch(0);
    Values v = read(x, s.batch * s.seq * s.heads * s.dim);
    const i64 half = s.dim / 2;
    for (i64 row = 0; row < s.batch * s.seq * s.heads; ++row) {
        const i64 at = row / s.heads;
        const auto position = static_cast<double>(positions == nullptr ? at % s.seq + s.start : positions[at]);
        for (i64 i = 0; i < half; ++i) {
            const double angle = position * turn(s, i);
            const double cosine = s.magnitude * std::cos(angle);
            const double sine = s.magnitude * (s.inverse ? -std::sin(angle) : std::sin(angle));
            double& a = v[row * s.dim + i];
            double& b = v[row * s.dim + half + i];
            const double first = a * cosine - b * sine;
            b = b * cosine + a * sine;
            a = first;
        }
    }
    write(y, v);
}

double factor(In scale) { return scale.data == nullptr ? 1.0 : read_one(scale); }

/// The sum of losses and the number of rows that count.
struct Losses {
    double total = 0, counted = 0;

    /// Adds a row of logits and replaces it by its gradient times `by`.
    void add(double* row, i64 vocab, std::int32_t target, std::int32_t ignore, double by) {
        if (target == ignore) return std::fill(row, row + vocab, 0.0);
        counted += 1;
        const bool valid = target >= 0 && target < vocab;
        const double at_target = valid ? row[target] : std::numeric_limits<double>::quiet_NaN();
        const double top = *std::max_element(row, row + vocab);
        double sum = 0;
        for (i64 c = 0; c < vocab; ++c) sum += row[c] = std::exp(row[c] - top);
        total += top + std::log(sum) - at_target;
        for (i64 c = 0; c < vocab; ++c) row[c] *= by / sum;
        if (valid) row[target] -= by;
    }
};

void cross_entropy(Context&, In logits, const std::int32_t* targets, In scale, Out loss, Out count, Out dlogits,
                   i64 rows, i64 vocab, std::int32_t ignore) {
    Values v = read(logits, rows * vocab);
    Losses losses;
    for (i64 r = 0; r < rows; ++r) losses.add(v.data() + r * vocab, vocab, targets[r], ignore, factor(scale));
    write_one(loss, losses.total);
    write_one(count, losses.counted);
    if (dlogits.data != nullptr) write(dlogits, v);
}

void cross_entropy_stats(Context&, const VocabShard& s, In logits, In top, const std::int32_t* targets, Out total,
                         Out picked) {
    const Values v = read(logits, s.rows * s.cols), most = read(top, s.rows);
    Values sums(static_cast<size_t>(s.rows)), at(static_cast<size_t>(s.rows));
    for (i64 r = 0; r < s.rows; ++r) {
        if (targets[r] == s.ignore) continue;
        for (i64 c = 0; c < s.cols; ++c) sums[r] += std::exp(v[r * s.cols + c] - most[r]);
        const i64 column = targets[r] - s.start;
        if (column >= 0 && column < s.cols) at[r] = v[r * s.cols + column];
        if (targets[r] < 0 || targets[r] >= s.vocab) at[r] = std::numeric_limits<double>::quiet_NaN();
    }
    write(total, sums);
    write(picked, at);
}

void cross_entropy_loss(Context&, In top, In total, In picked, const std::int32_t* targets, Out loss, Out count,
                        i64 rows, std::int32_t ignore) {
    const Values most = read(top, rows), sums = read(total, rows), at = read(picked, rows);
    double all = 0, counted = 0;
    for (i64 r = 0; r < rows; ++r) {
        if (targets[r] == ignore) continue;
        counted += 1;
        all += (most[r] - at[r]) + std::log(sums[r]);
    }
    write_one(loss, all);
    write_one(count, counted);
}

/// dlogits = by (exp(logit - top) / total - onehot) in place of a row of logits of a shard.
void slope_row(const VocabShard& s, double* row, std::int32_t target, double top, double total, double by) {
    if (target == s.ignore) return std::fill(row, row + s.cols, 0.0);
    for (i64 c = 0; c < s.cols; ++c) row[c] = by * std::exp(row[c] - top) / total;
    const i64 column = target - s.start;
    if (column >= 0 && column < s.cols) row[column] -= by;
}

void cross_entropy_grad(Context&, const VocabShard& s, In logits, In top, In total, const std::int32_t* targets,
                        In scale, Out dlogits) {
    Values v = read(logits, s.rows * s.cols);
    const Values most = read(top, s.rows), sums = read(total, s.rows);
    const double by = factor(scale);
    for (i64 r = 0; r < s.rows; ++r) slope_row(s, v.data() + r * s.cols, targets[r], most[r], sums[r], by);
    write(dlogits, v);
}

/// The log of the sum of exponentials of n numbers.
double log_sum(const double* x, i64 n) {
    const double top = *std::max_element(x, x + n);
    if (top == -std::numeric_limits<double>::infinity()) return top;
    double sum = 0;
    for (i64 c = 0; c < n; ++c) sum += std::exp(x[c] - top);
    return top + std::log(sum);
}

/// lse by block of a row's columns, and the target's logit.
void stats_row(const TiledLoss& s, const double* row, std::int32_t target, double* lse, double& picked) {
    if (target == s.ignore) return;
    const i64 size = s.cols / s.blocks, column = target - s.start;
    for (i64 b = 0; b < s.blocks; ++b) lse[b] = log_sum(row + b * size, size);
    if (column >= 0 && column < s.cols) picked = row[column];
    if (target < 0 || target >= s.vocab) picked = std::numeric_limits<double>::quiet_NaN();
}

/// Tiles of logits and dlogits are rounded to the type of x; dhead and dbias are summed over all tiles before they are.
void tiled_loss(Context& c, const TiledLoss& s, const TiledLossData& t) {
    using Part = TiledLoss::Part;
    const i64 tile = std::min(s.tile, s.rows);
    Values memory(static_cast<size_t>(tile * s.cols)), dhead(s.gradients ? static_cast<size_t>(s.width * s.cols) : 0),
        dx(s.gradients ? static_cast<size_t>(s.rows * s.width) : 0), dbias(static_cast<size_t>(s.cols));
    const auto statistics = [&](i64 n) { return Values(s.part == Part::statistics ? static_cast<size_t>(n) : 0); };
    Values lse = statistics(s.blocks * s.rows), picked = statistics(s.rows);
    const bool known = s.part == Part::gradients;
    const Values top = known ? read(t.top, s.rows) : Values(), total = known ? read(t.total, s.rows) : Values();
    const double by = tile_scale(t.x.type);
    Losses losses;
    TiledLossData data = t;
    data.dhead = dhead.data();
    data.dx = dx.data();
    const auto rows = [&](i64 first, i64 n, Out logits) {
        Values v = read(logits, n * s.cols);
        for (i64 i = 0; i < n; ++i) {
            double* row = v.data() + i * s.cols;
            const i64 r = first + i;
            if (s.part == Part::whole) losses.add(row, s.cols, t.targets[r], s.ignore, by);
            if (s.part == Part::statistics) stats_row(s, row, t.targets[r], &lse[r * s.blocks], picked[r]);
            if (known) slope_row(s.shard(n), row, t.targets[r], top[r], total[r], by);
        }
        if (!s.gradients) return;
        write(logits, v);
        const Values rounded = read(logits, n * s.cols);
        for (i64 i = 0; i < n * s.cols; ++i) dbias[i % s.cols] += rounded[i];
    };
    TiledLoss sums = s;
    sums.accumulate = false;
    each_tile(
        sums, data, Out(memory.data(), t.x.type),
        [&](const Matmul& p, In a, In b, In bias, Out y) { table().matmul(c, p, a, b, bias, y); }, rows);
    if (s.part == Part::whole) {
        write(t.loss, Values{losses.total}, s.accumulate);
        write(t.count, Values{losses.counted}, s.accumulate);
    }
    if (s.part == Part::statistics) {
        write(t.lse, lse);
        write(t.picked, picked);
    }
    if (!s.gradients) return;
    for (Values* all : {&dx, &dhead, &dbias})
        for (double& e : *all) e /= by;
    write(t.dx, dx);
    write(t.dhead, dhead, s.accumulate);
    if (s.bias_gradient) write(t.dbias, dbias, s.accumulate);
}

}  // namespace

void add_tokens(Kernels& k) {
    k.embedding = embedding;
    k.embedding_grad = embedding_grad;
    k.rope = rope;
    k.cross_entropy = cross_entropy;
    k.cross_entropy_stats = cross_entropy_stats;
    k.cross_entropy_loss = cross_entropy_loss;
    k.cross_entropy_grad = cross_entropy_grad;
    k.tiled_loss = tiled_loss;
}

}  // namespace orrery::kernels::reference
