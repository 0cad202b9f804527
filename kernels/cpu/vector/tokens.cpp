// Kernels of tokens and positions: embedding, rotary embedding, cross entropy.
#include "kernels/cpu/picks.h"
#include "kernels/cpu/rows.h"
#include "kernels/tiled_loss.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

void embedding(Context& c, const Embedding& s, const std::int32_t* tokens, In table, Out y) {
    parallel(c.threads(), s.tokens, 1 + grain / (s.cols + 1), 1, [&](i64 begin, i64 end) {
        float buffer[tile];
        for (i64 i = begin; i < end; ++i) {
            const i64 row = tokens[i] - s.start;
            const bool held = row >= 0 && row < s.rows;
            for (i64 j = 0; j < s.cols; j += tile) {
                const i64 size = s.cols - j < tile ? s.cols - j : tile;
                float* to = target(y, i * s.cols + j, buffer);
                if (!held) {
                    zero(to, size);
                } else if (const float* from = fetch(table, row * s.cols + j, size, buffer); from != to) {
                    __builtin_memcpy(to, from, static_cast<size_t>(size) * 4);
                }
                flush(y, i * s.cols + j, size, to);
            }
        }
    });
}

/// The gradient adds rows of dy by token.
void embedding_grad(Context& c, const Embedding& s, const std::int32_t* tokens, In dy, Out dtable) {
    add_picks(c, picks_of(s), dy, tokens, dtable.as<float>());
}

/// A table of cosines and sines is made once per call: half angles for each time, shared by batch and heads, or with
/// given positions for each row of x.
void rope(Context& c, const Rope& s, In x, const std::int32_t* positions, Out y) {
    const i64 half = s.dim / 2, step = (half + 15) / 16 * 16, times = positions == nullptr ? s.seq : s.batch * s.seq;
    float* cosines = static_cast<float*>(c.scratch((2 * times * step + 64) * 4));
    float* sines = cosines + times * step;
    const auto magnitude = static_cast<float>(s.magnitude);
    parallel(c.threads(), times, 64, 1, [&](i64 begin, i64 end) {
        for (i64 i = 0; i < half; ++i) {
            const double each = turn(s, i);
            const double turn_cos = __builtin_cos(each), turn_sin = __builtin_sin(each);
            double a = 0, b = 0;
            for (i64 t = begin; t < end; ++t) {
                // Computed exactly every 64 positions and where they do not follow; others rotate the previous one.
                const i64 position = positions == nullptr ? s.start + t : positions[t];
                if ((t - begin) % 64 == 0 || (positions != nullptr && position != i64{positions[t - 1]} + 1)) {
                    a = __builtin_cos(each * static_cast<double>(position));
                    b = __builtin_sin(each * static_cast<double>(position));
                }
                cosines[t * step + i] = magnitude * static_cast<float>(a);
                sines[t * step + i] = magnitude * static_cast<float>(s.inverse ? -b : b);
                const double next = a * turn_cos - b * turn_sin;
                b = b * turn_cos + a * turn_sin;
                a = next;
            }
        }
    });
    parallel(c.threads(), s.batch * s.seq, 1 + grain / (s.heads * s.dim + 1), 1, [&](i64 begin, i64 end) {
        float buffers[2][tile];
        for (i64 row = begin * s.heads; row < end * s.heads; ++row) {
            const i64 t = row / s.heads % times, at = row * s.dim;
            for (i64 i = 0; i < half; i += tile / 2) {
                const i64 size = half - i < tile / 2 ? half - i : tile / 2;
                const float* u = fetch(x, at + i, size, buffers[0]);
                const float* v = fetch(x, at + half + i, size, buffers[0] + tile / 2);
                const float *cs = cosines + t * step + i, *sn = sines + t * step + i;
                // Both halves are complete before either is written: y may be x.
                map(
                    buffers[1], size, [](Vec p, Vec q, Vec co, Vec si) { return p * co - q * si; }, u, v, cs, sn);
                float* second = target(y, at + half + i, buffers[1] + tile / 2);
                map(
                    second, size, [](Vec p, Vec q, Vec co, Vec si) { return q * co + p * si; }, u, v, cs, sn);
                float* first = target(y, at + i, buffers[1]);
                if (first != buffers[1]) __builtin_memcpy(first, buffers[1], static_cast<size_t>(size) * 4);
                flush(y, at + i, size, buffers[1]);
                flush(y, at + half + i, size, buffers[1] + tile / 2);
            }
        }
    });
}

float factor(In scale) { return scale.data == nullptr ? 1.0f : *scale.as<float>(); }

/// One row: -log softmax at the target; writes the gradient times `by` to `to` unless it is null.
float row_loss(const float* row, float* to, i64 vocab, std::int32_t target, float by) {
    const bool valid = target >= 0 && target < vocab;
    const float at_target = valid ? row[target] : __builtin_nanf("");
    const float top = row_max(row, vocab, -__builtin_inff());
    const float total = exp_sum(row, to, vocab, top);
    map(
        to, vocab, [s = Vec(by / total)](Vec v) { return v * s; }, to);
    if (valid) to[target] -= by;
    return (top - at_target) + __builtin_logf(total);  // exact for small differences
}

/// Rows shared by threads, and a buffer of one row for each.
struct RowTeam {
    i64 rows, cols, step;
    int parts;

    RowTeam(int threads, i64 rows, i64 cols)
        : rows(rows), cols(cols), step((cols + 15) / 16 * 16), parts(parts_of(threads, rows, 1 + grain / (cols + 1))) {}
    i64 floats() const { return parts * step; }
    /// Calls f(row, buffer) for all rows.
    template <class F>
    void run(float* scratch, F f) const {
        team(parts, [&](int part) {
            const i64 end = cut(rows, parts, part + 1, 1);
            for (i64 r = cut(rows, parts, part, 1); r < end; ++r) f(r, scratch + part * step);
        });
    }
};

/// losses [rows], 0 for ignored ones; dlogits (absent: data null; may be logits) times `by`.
void row_losses(const RowTeam& shares, In logits, const std::int32_t* targets, float by, float* losses, Out dlogits,
                std::int32_t ignore, float* scratch) {
    const i64 vocab = shares.cols;
    shares.run(scratch, [&](i64 r, float* buffer) {
        float* to = dlogits.data != nullptr ? target(dlogits, r * vocab, buffer) : buffer;
        if (targets[r] == ignore) {
            losses[r] = 0;
            if (dlogits.data != nullptr) zero(to, vocab);
        } else {
            losses[r] = row_loss(fetch(logits, r * vocab, vocab, buffer), to, vocab, targets[r], by);
        }
        if (dlogits.data != nullptr) flush(dlogits, r * vocab, vocab, to);
    });
}

void total_loss(const float* losses, const std::int32_t* targets, i64 rows, std::int32_t ignore, Out loss, Out count,
                bool accumulate) {
    double total = 0, counted = 0;
    for (i64 r = 0; r < rows; ++r) {
        total += losses[r];
        counted += targets[r] != ignore;
    }
    *loss.as<float>() = (accumulate ? *loss.as<float>() : 0) + static_cast<float>(total);
    *count.as<float>() = (accumulate ? *count.as<float>() : 0) + static_cast<float>(counted);
}

void cross_entropy(Context& c, In logits, const std::int32_t* targets, In scale, Out loss, Out count, Out dlogits,
                   i64 rows, i64 vocab, std::int32_t ignore) {
    const RowTeam shares(c.threads(), rows, vocab);
    float* losses = static_cast<float*>(c.scratch((rows + 16 + shares.floats()) * 4));
    row_losses(shares, logits, targets, factor(scale), losses, dlogits, ignore, losses + (rows + 15) / 16 * 16);
    total_loss(losses, targets, rows, ignore, loss, count, false);
}

/// Number i of a row of statistics of any float type.
float number(In x, i64 i) {
    float buffer[tile];
    return *fetch(x, i, 1, buffer);
}

/// The target's logit, 0 where another shard has it.
float picked_of(const VocabShard& s, const float* row, std::int32_t target) {
    if (target < 0 || target >= s.vocab) return __builtin_nanf("");
    const i64 column = target - s.start;
    return column >= 0 && column < s.cols ? row[column] : 0;
}

void cross_entropy_stats(Context& c, const VocabShard& s, In logits, In top, const std::int32_t* targets, Out total,
                         Out picked) {
    const RowTeam shares(c.threads(), s.rows, s.cols);
    shares.run(static_cast<float*>(c.scratch(shares.floats() * 4)), [&](i64 r, float* buffer) {
        float sum = 0, at = 0;
        if (targets[r] != s.ignore) {
            const float* row = fetch(logits, r * s.cols, s.cols, buffer);
            at = picked_of(s, row, targets[r]);
            sum = exp_sum(row, buffer, s.cols, number(top, r));
        }
        total.as<float>()[r] = sum;
        picked.as<float>()[r] = at;
    });
}

void cross_entropy_loss(Context&, In top, In total, In picked, const std::int32_t* targets, Out loss, Out count,
                        i64 rows, std::int32_t ignore) {
    double all = 0, counted = 0;
    for (i64 r = 0; r < rows; ++r) {
        if (targets[r] == ignore) continue;
        counted += 1;
        all += (number(top, r) - picked.as<float>()[r]) + __builtin_logf(total.as<float>()[r]);
    }
    *loss.as<float>() = static_cast<float>(all);
    *count.as<float>() = static_cast<float>(counted);
}

/// dlogits (may be logits) = by (exp(logit - top) / total - onehot).
void slope_rows(const RowTeam& shares, const VocabShard& s, In logits, In top, In total, const std::int32_t* targets,
                float by, Out dlogits, float* scratch) {
    shares.run(scratch, [&](i64 r, float* buffer) {
        float* to = target(dlogits, r * s.cols, buffer);
        if (targets[r] == s.ignore) {
            zero(to, s.cols);
        } else {
            const Vec shift(number(top, r)), part_of(by / total.as<float>()[r]);
            map(
                to, s.cols, [&](Vec x) { return exp(x - shift) * part_of; }, fetch(logits, r * s.cols, s.cols, buffer));
            const i64 column = targets[r] - s.start;
            if (column >= 0 && column < s.cols) to[column] -= by;
        }
        flush(dlogits, r * s.cols, s.cols, to);
    });
}

void cross_entropy_grad(Context& c, const VocabShard& s, In logits, In top, In total, const std::int32_t* targets,
                        In scale, Out dlogits) {
    const RowTeam shares(c.threads(), s.rows, s.cols);
    float* scratch = static_cast<float*>(c.scratch(shares.floats() * 4));
    slope_rows(shares, s, logits, top, total, targets, factor(scale), dlogits, scratch);
}

/// The statistics of rows first .. by block of their columns.
void block_stats(const RowTeam& shares, const TiledLoss& s, i64 first, In logits, const TiledLossData& t,
                 float* scratch) {
    const i64 size = s.cols / s.blocks;
    shares.run(scratch, [&](i64 i, float* buffer) {
        const i64 r = first + i;
        const bool counts = t.targets[r] != s.ignore;
        const float* row = counts ? fetch(logits, i * s.cols, s.cols, buffer) : nullptr;
        t.picked.as<float>()[r] = counts ? picked_of(s.shard(shares.rows), row, t.targets[r]) : 0;
        for (i64 b = 0; b < s.blocks; ++b) {
            const float top = counts ? row_max(row + b * size, size, -__builtin_inff()) : 0;
            // Masked columns of f16 may be -inf in the whole block.
            const bool some = counts && top != -__builtin_inff();
            const float total = some ? exp_sum(row + b * size, buffer + b * size, size, top) : 1;
            t.lse.as<float>()[r * s.blocks + b] = top + __builtin_logf(total);
        }
    });
}

/// y (+)= the sum over n rows of x [n, cols].
void add_rows(int threads, In x, i64 n, i64 cols, bool accumulate, float* y) {
    parallel(threads, cols, 1 + grain / n, tile, [&](i64 begin, i64 end) {
        float buffer[tile];
        for (i64 j = begin; j < end; j += tile) {
            const i64 size = end - j < tile ? end - j : tile;
            if (!accumulate) zero(y + j, size);
            for (i64 r = 0; r < n; ++r)
                map(
                    y + j, size, [](Vec a, Vec b) { return a + b; }, y + j, fetch(x, r * cols + j, size, buffer));
        }
    });
}

void multiply(int threads, i64 n, float by, float* y) {
    parallel(threads, n, grain, 64, [&](i64 begin, i64 end) {
        map(
            y + begin, end - begin, [s = Vec(by)](Vec v) { return v * s; }, y + begin);
    });
}

/// The GEMMs are the table's, with scratch of this call.
void tiled_loss(Context& c, const TiledLoss& s, const TiledLossData& t) {
    using Part = TiledLoss::Part;
    const auto aligned = [](i64 bytes) { return (bytes + 63) / 64 * 64; };
    const i64 tile_rows = s.tile < s.rows ? s.tile : s.rows;
    const RowTeam largest(c.threads(), tile_rows, s.cols);
    const i64 losses_bytes = aligned(s.part == Part::whole ? s.rows * 4 : 0),
              rows_bytes = aligned(largest.floats() * 4), tile_bytes = aligned(tile_rows * s.cols * size_of(t.x.type));
    i64 product_bytes = 0;
    TiledLoss one = s;  // a tile of each size that there is
    for (one.rows = tile_rows; one.rows > 0; one.rows = one.rows == tile_rows ? s.rows % tile_rows : 0)
        each_tile(
            one, t, Out(&one, t.x.type),  // not accessed
            [&](const Matmul& p, In a, In b, In bias, Out y) {
                const i64 bytes = matmul_scratch(c, p, a, b, bias, y);
                product_bytes = bytes > product_bytes ? bytes : product_bytes;
            },
            [](i64, i64, Out) {});
    char* const memory = static_cast<char*>(c.scratch(losses_bytes + rows_bytes + tile_bytes + aligned(product_bytes)));
    float* const losses = reinterpret_cast<float*>(memory);
    float* const scratch = reinterpret_cast<float*>(memory + losses_bytes);
    Context inner(c.threads());
    inner.use(c.products());
    inner.lend(memory + losses_bytes + rows_bytes + tile_bytes, aligned(product_bytes));
    const auto by = static_cast<float>(tile_scale(t.x.type));
    const bool scaled = s.gradients && by != 1, adds_bias = s.bias_gradient;
    const i64 head = s.width * s.cols;
    if (scaled && s.accumulate) {  // tiles add scaled gradients, so the old sum is scaled first
        multiply(c.threads(), head, by, t.dhead.as<float>());
        if (adds_bias) multiply(c.threads(), s.cols, by, t.dbias.as<float>());
    }
    each_tile(
        s, t, Out(memory + losses_bytes + rows_bytes, t.x.type),
        [&](const Matmul& p, In a, In b, In bias, Out y) { matmul(inner, p, a, b, bias, y); },
        [&](i64 first, i64 n, Out logits) {
            const RowTeam shares(c.threads(), n, s.cols);
            if (s.part == Part::whole)
                row_losses(shares, logits, t.targets + first, by, losses + first, s.gradients ? logits : Out{},
                           s.ignore, scratch);
            if (s.part == Part::statistics) block_stats(shares, s, first, logits, t, scratch);
            if (s.part == Part::gradients)
                slope_rows(shares, s.shard(n), logits, from(t.top, first), from(t.total, first), t.targets + first, by,
                           logits, scratch);
            if (adds_bias) add_rows(c.threads(), logits, n, s.cols, s.accumulate || first > 0, t.dbias.as<float>());
        });
    if (s.part == Part::whole) total_loss(losses, t.targets, s.rows, s.ignore, t.loss, t.count, s.accumulate);
    if (!scaled) return;
    multiply(c.threads(), s.rows * s.width, 1 / by, t.dx.as<float>());
    multiply(c.threads(), head, 1 / by, t.dhead.as<float>());
    if (adds_bias) multiply(c.threads(), s.cols, 1 / by, t.dbias.as<float>());
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

}  // namespace orrery::kernels::cpu::ORRERY_ISA
