// Kernels of tokens and positions: embedding, rotary embedding, cross entropy.
#include "kernels/cpu/picks.h"
#include "kernels/cpu/rows.h"

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

void cross_entropy(Context& c, In logits, const std::int32_t* targets, In scale, Out loss, Out count, Out dlogits,
                   i64 rows, i64 vocab, std::int32_t ignore) {
    const i64 step = (vocab + 15) / 16 * 16;
    const int parts = parts_of(c.threads(), rows, 1 + grain / (vocab + 1));
    float* losses = static_cast<float*>(c.scratch((rows + 16 + parts * step) * 4));
    float* scratch = losses + (rows + 15) / 16 * 16;
    const float by = factor(scale);
    team(parts, [&](int part) {
        float* buffer = scratch + part * step;
        const i64 end = cut(rows, parts, part + 1, 1);
        for (i64 r = cut(rows, parts, part, 1); r < end; ++r) {
            float* to = dlogits.data != nullptr ? target(dlogits, r * vocab, buffer) : buffer;
            if (targets[r] == ignore) {
                losses[r] = 0;
                if (dlogits.data != nullptr) zero(to, vocab);
            } else {
                losses[r] = row_loss(fetch(logits, r * vocab, vocab, buffer), to, vocab, targets[r], by);
            }
            if (dlogits.data != nullptr) flush(dlogits, r * vocab, vocab, to);
        }
    });
    double total = 0, counted = 0;
    for (i64 r = 0; r < rows; ++r) {
        total += losses[r];
        counted += targets[r] != ignore;
    }
    *loss.as<float>() = static_cast<float>(total);
    *count.as<float>() = static_cast<float>(counted);
}

/// Number i of a row of statistics of any float type.
float number(In x, i64 i) {
    float buffer[tile];
    return *fetch(x, i, 1, buffer);
}

void cross_entropy_stats(Context& c, const VocabShard& s, In logits, In top, const std::int32_t* targets, Out total,
                         Out picked) {
    const i64 step = (s.cols + 15) / 16 * 16;
    const int parts = parts_of(c.threads(), s.rows, 1 + grain / (s.cols + 1));
    float* scratch = static_cast<float*>(c.scratch(parts * step * 4));
    team(parts, [&](int part) {
        float* buffer = scratch + part * step;
        const i64 end = cut(s.rows, parts, part + 1, 1);
        for (i64 r = cut(s.rows, parts, part, 1); r < end; ++r) {
            float sum = 0, at = 0;
            if (targets[r] != s.ignore) {
                const float* row = fetch(logits, r * s.cols, s.cols, buffer);
                const i64 column = targets[r] - s.start;
                if (column >= 0 && column < s.cols) at = row[column];
                if (targets[r] < 0 || targets[r] >= s.vocab) at = __builtin_nanf("");
                sum = exp_sum(row, buffer, s.cols, number(top, r));
            }
            total.as<float>()[r] = sum;
            picked.as<float>()[r] = at;
        }
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

void cross_entropy_grad(Context& c, const VocabShard& s, In logits, In top, In total, const std::int32_t* targets,
                        In scale, Out dlogits) {
    const i64 step = (s.cols + 15) / 16 * 16;
    const int parts = parts_of(c.threads(), s.rows, 1 + grain / (s.cols + 1));
    float* scratch = static_cast<float*>(c.scratch(parts * step * 4));
    const float by = factor(scale);
    team(parts, [&](int part) {
        float* buffer = scratch + part * step;
        const i64 end = cut(s.rows, parts, part + 1, 1);
        for (i64 r = cut(s.rows, parts, part, 1); r < end; ++r) {
            float* to = target(dlogits, r * s.cols, buffer);
            if (targets[r] == s.ignore) {
                zero(to, s.cols);
            } else {
                const Vec shift(number(top, r)), part_of(by / total.as<float>()[r]);
                map(
                    to, s.cols, [&](Vec x) { return exp(x - shift) * part_of; },
                    fetch(logits, r * s.cols, s.cols, buffer));
                const i64 column = targets[r] - s.start;
                if (column >= 0 && column < s.cols) to[column] -= by;
            }
            flush(dlogits, r * s.cols, s.cols, to);
        }
    });
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

}  // namespace orrery::kernels::cpu::ORRERY_ISA
