#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/values.h"

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

void cross_entropy(Context&, In logits, const std::int32_t* targets, In scale, Out loss, Out count, Out dlogits,
                   i64 rows, i64 vocab, std::int32_t ignore) {
    Values v = read(logits, rows * vocab);
    const double by = factor(scale);
    double total = 0, counted = 0;
    for (i64 r = 0; r < rows; ++r) {
        double* row = v.data() + r * vocab;
        const std::int32_t target = targets[r];
        if (target == ignore) {
            std::fill(row, row + vocab, 0.0);
            continue;
        }
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
    write_one(loss, total);
    write_one(count, counted);
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

void cross_entropy_grad(Context&, const VocabShard& s, In logits, In top, In total, const std::int32_t* targets,
                        In scale, Out dlogits) {
    Values v = read(logits, s.rows * s.cols);
    const Values most = read(top, s.rows), sums = read(total, s.rows);
    const double by = factor(scale);
    for (i64 r = 0; r < s.rows; ++r) {
        const bool counts = targets[r] != s.ignore;
        for (i64 c = 0; c < s.cols; ++c) {
            double& x = v[r * s.cols + c];
            x = counts ? by * std::exp(x - most[r]) / sums[r] : 0;
        }
        const i64 column = targets[r] - s.start;
        if (counts && column >= 0 && column < s.cols) v[r * s.cols + column] -= by;
    }
    write(dlogits, v);
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
}

}  // namespace orrery::kernels::reference
