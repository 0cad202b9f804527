// Embedding, its gradient by sorting, and rotary positions.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/moves.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

struct Gather {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Embedding s;
    const std::int32_t* tokens;
    AnyIn table;
    AnyOut y;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 runs = (s.cols + run - 1) / run;
        for (i64 i = b.index() * threads + b.thread(); i < s.tokens * runs; i += b.blocks() * threads) {
            const i64 token = i / runs, c = i % runs * run, row = tokens[token] - s.start;
            float v[run] = {};
            if (row >= 0 && row < s.rows) table.load(row * s.cols + c, s.cols - c, v);
            y.store(token * s.cols + c, s.cols - c, v);
        }
    }
};

void embedding(kernels::Context& context, const Embedding& s, const std::int32_t* tokens, In table, Out y) {
    Call& call = call_of(context);
    const Gather body{s, tokens, AnyIn(table, aligned_rows(table.data, table.type, s.cols)),
                      AnyOut(y, aligned_rows(y.data, y.type, s.cols))};
    launch(call, blocks_for(call, s.tokens * divide_up(s.cols, run), Gather::threads), body);
}

// The gradient sorts (row, place) pairs by row, stably, and adds up each row's places in that order: 8 bits a pass, a
// tile of 256 pairs a block.
constexpr int digits = 256;

struct Pair {
    std::uint32_t row, place;
};

/// Makes pairs of the tokens; those without a row here get row s.rows, after all others.
struct MakePairs {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Embedding s;
    const std::int32_t* tokens;
    Pair* pairs;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 i = b.index() * threads + b.thread();
        if (i >= s.tokens) return;
        const i64 row = tokens[i] - s.start;
        pairs[i] = {static_cast<std::uint32_t>(row >= 0 && row < s.rows ? row : s.rows), static_cast<std::uint32_t>(i)};
    }
};

/// counts[digit, tile]: number of pairs of the tile with this digit.
struct CountDigits {
    static constexpr int threads = digits;
    static constexpr bool barriers = true;
    const Pair* pairs;
    std::uint32_t* counts;
    i64 n, tiles;
    int shift;
    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* digit = b.shared<std::uint32_t>();
        const i64 i = b.index() * digits + b.thread();
        digit[b.thread()] = i < n ? pairs[i].row >> shift & (digits - 1) : digits;
        b.sync();
        std::uint32_t count = 0;
        for (int j = 0; j < digits; ++j) count += digit[j] == static_cast<std::uint32_t>(b.thread()) ? 1 : 0;
        counts[b.thread() * tiles + b.index()] = count;
    }
};

/// Exclusive prefix sum of the counts; one block.
struct ScanCounts {
    static constexpr int threads = 1024;
    static constexpr bool barriers = true;
    std::uint32_t* counts;
    i64 n;
    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* sums = b.shared<std::uint32_t>();
        const i64 share = (n + threads - 1) / threads, first = b.thread() * share;
        const i64 end = first + share < n ? first + share : n;
        std::uint32_t own = 0;
        for (i64 i = first; i < end; ++i) own += counts[i];
        sums[b.thread()] = own;
        for (int step = 1; step < threads; step *= 2) {
            b.sync();
            const std::uint32_t before = b.thread() >= step ? sums[b.thread() - step] : 0;
            b.sync();
            sums[b.thread()] += before;
        }
        std::uint32_t at = sums[b.thread()] - own;
        for (i64 i = first; i < end; ++i) {
            const std::uint32_t count = counts[i];
            counts[i] = at;
            at += count;
        }
    }
};

/// Moves each pair after those of smaller digits, earlier tiles and earlier places of its own tile.
struct MovePairs {
    static constexpr int threads = digits;
    static constexpr bool barriers = true;
    const Pair* from;
    Pair* to;
    const std::uint32_t* before;
    i64 n, tiles;
    int shift;
    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* digit = b.shared<std::uint32_t>();
        const i64 i = b.index() * digits + b.thread();
        const Pair pair = i < n ? from[i] : Pair{};
        const std::uint32_t own = i < n ? pair.row >> shift & (digits - 1) : digits;
        digit[b.thread()] = own;
        b.sync();
        if (i >= n) return;
        std::uint32_t rank = 0;
        for (int j = 0; j < b.thread(); ++j) rank += digit[j] == own ? 1 : 0;
        to[before[static_cast<i64>(own) * tiles + b.index()] + rank] = pair;
    }
};

constexpr i64 places_a_block = 32;

/// Adds dy over equal rows within 32 sorted places. Rows that continue beyond an end of them leave their sum in `edges`
/// [blocks, 2, cols]: 0 for the row at the beginning, 1 for another one at the end.
struct AddPlaces {
    static constexpr int threads = 128;
    static constexpr bool barriers = false;
    Embedding s;
    const Pair* pairs;
    AnyIn dy;
    float* table;
    float* edges;
    i64 col_blocks;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 block = b.index() / col_blocks, c = (b.index() % col_blocks * threads + b.thread()) * run;
        const i64 first = block * places_a_block;
        const i64 end = first + places_a_block < s.tokens ? first + places_a_block : s.tokens;
        if (c >= s.cols) return;
        for (i64 i = first; i < end;) {
            const std::uint32_t row = pairs[i].row;
            const i64 begin = i;
            float sum[run] = {};
            for (; i < end && pairs[i].row == row; ++i) {
                float v[run];
                if (row >= s.rows) continue;
                dy.load(static_cast<i64>(pairs[i].place) * s.cols + c, s.cols - c, v);
#pragma unroll
                for (int l = 0; l < run; ++l) sum[l] += v[l];
            }
            if (row >= s.rows) return;
            const bool from_before = begin == first && first > 0 && pairs[first - 1].row == row;
            const bool goes_on = i == end && end < s.tokens && pairs[end].row == row;
            if (from_before || goes_on) {
                float* edge = edges + (block * 2 + (from_before ? 0 : 1)) * s.cols + c;
                for (int l = 0; l < run && c + l < s.cols; ++l) edge[l] = sum[l];
            } else {
                float* to = table + static_cast<i64>(row) * s.cols + c;
                for (int l = 0; l < run && c + l < s.cols; ++l) to[l] = s.accumulate ? to[l] + sum[l] : sum[l];
            }
        }
    }
};

/// Rows that span several blocks: the block in which one begins adds up its edges in order.
struct AddEdges {
    static constexpr int threads = 128;
    static constexpr bool barriers = false;
    Embedding s;
    const Pair* pairs;
    float* table;
    const float* edges;
    i64 blocks;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 first = b.index() * places_a_block, next = first + places_a_block;
        if (next >= s.tokens) return;
        const std::uint32_t row = pairs[next].row;
        const bool begins = pairs[next - 1].row == row && row < s.rows &&
                            (first == 0 || pairs[first - 1].row != row || pairs[first].row != row);
        if (!begins) return;
        for (i64 c = b.thread(); c < s.cols; c += threads) {
            float sum = edges[(b.index() * 2 + 1) * s.cols + c];
            for (i64 k = b.index() + 1;
                 k < blocks && pairs[k * places_a_block].row == row && pairs[k * places_a_block - 1].row == row; ++k)
                sum += edges[k * 2 * s.cols + c];
            float* to = table + static_cast<i64>(row) * s.cols + c;
            *to = s.accumulate ? *to + sum : sum;
        }
    }
};

/// Sorts pairs of the tokens; the result is in one of two buffers.
Pair* sort_pairs(Call& call, const Embedding& s, const std::int32_t* tokens) {
    Pair* pairs = call.take_array<Pair>(s.tokens);
    Pair* other = call.take_array<Pair>(s.tokens);
    const i64 tiles = divide_up(s.tokens, digits);
    auto* counts = call.take_array<std::uint32_t>(digits * tiles);
    launch(call, tiles, MakePairs{s, tokens, pairs});
    for (int shift = 0; shift < 32 && s.rows >> shift != 0; shift += 8) {
        launch(call, tiles, CountDigits{pairs, counts, s.tokens, tiles, shift}, digits * 4);
        launch(call, 1, ScanCounts{counts, digits * tiles}, 1024 * 4);
        launch(call, tiles, MovePairs{pairs, other, counts, s.tokens, tiles, shift}, digits * 4);
        Pair* const sorted = other;
        other = pairs;
        pairs = sorted;
    }
    return pairs;
}

void embedding_grad(kernels::Context& context, const Embedding& s, const std::int32_t* tokens, In dy, Out dtable) {
    Call& call = call_of(context);
    if (!s.accumulate) fill(call, dtable.data, s.rows * s.cols * 4, Words{});
    if (s.tokens == 0) return;
    const Pair* pairs = sort_pairs(call, s, tokens);
    const i64 blocks = divide_up(s.tokens, places_a_block), col_blocks = divide_up(s.cols, AddPlaces::threads * run);
    float* edges = call.take_array<float>(blocks * 2 * s.cols);
    auto* table = static_cast<float*>(dtable.data);
    launch(call, blocks * col_blocks,
           AddPlaces{s, pairs, AnyIn(dy, aligned_rows(dy.data, dy.type, s.cols)), table, edges, col_blocks});
    launch(call, blocks, AddEdges{s, pairs, table, edges, blocks});
}

/// Cosine and sine of an angle, in double because positions are large: pi/2 in two parts leaves a rest within 45
/// degrees, where seven terms of the series are accurate to 1e-13.
ORRERY_DEVICE void cosine_and_sine(double angle, float& cosine, float& sine) {
    const double quarters = rint(angle * 0.63661977236758134308);
    double x = fma(-quarters, 1.57079632679489655800, angle);
    x = fma(-quarters, 6.12323399573676603587e-17, x);
    const double xx = x * x;
    double s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = fma(s, xx, 1.0 / 362880), c = fma(c, xx, -1.0 / 3628800);
    s = fma(s, xx, -1.0 / 5040), c = fma(c, xx, 1.0 / 40320);
    s = fma(s, xx, 1.0 / 120), c = fma(c, xx, -1.0 / 720);
    s = fma(s, xx, -1.0 / 6), c = fma(c, xx, 1.0 / 24);
    s = fma(s * xx, x, x), c = fma(c, xx, -0.5);
    c = fma(c, xx, 1.0);
    const int quadrant = static_cast<int>(static_cast<i64>(quarters) & 3);
    const double one = (quadrant & 1) != 0 ? s : c, other = (quadrant & 1) != 0 ? c : s;
    cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -one : one);
    sine = static_cast<float>(quadrant >= 2 ? -other : other);
}

/// Rotates pairs (x[c], x[c + half]) of all heads at `each` adjacent times; the angles are in shared memory.
struct Rotate {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    static constexpr int most_slopes = 128;
    AnyIn x;
    AnyOut y;
    i64 rows, seq, start;  ///< rows [batch, seq]
    int each, heads, dim;
    int first, count;  ///< columns of this launch, first a multiple of 8
    bool inverse;
    float magnitude;
    const std::int32_t* positions;  ///< [rows], or null
    double slope[most_slopes];      ///< angle of a column at time 1

    /// Offset of a run of pairs, and of its angles.
    struct Place {
        i64 at;
        int angle, left;
    };
    ORRERY_DEVICE Place place(i64 row, int item) const {
        const auto runs = static_cast<unsigned>((count + run - 1) / run), i = static_cast<unsigned>(item);
        const unsigned head = i / runs, c = i % runs * run, time = head / static_cast<unsigned>(heads);
        return {row * heads * dim + static_cast<i64>(head) * dim + first + c, static_cast<int>(time * runs * run + c),
                count - static_cast<int>(c)};
    }

    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 row = b.index() * each;
        const int here = row + each <= rows ? each : static_cast<int>(rows - row), half = dim / 2;
        const int runs = (count + run - 1) / run, items = here * heads * runs;
        Packed<float> one, other;
        const auto fetch = [&](int item) {
            const bool there = x.wide && item < items;
            const i64 at = place(row, item).at;
            x.fetch(at, there, one);
            x.fetch(at + half, there, other);
        };
        fetch(b.thread());                   // loads are in flight while angles are computed
        float* cosines = b.shared<float>();  // [each, runs * 8], then sines
        float* sines = cosines + each * runs * run;
        for (int i = b.thread(); i < here * runs * run; i += b.threads()) {
            const int c = i % (runs * run);
            const i64 time = row + i / (runs * run), position = positions ? positions[time] : time % seq + start;
            const double angle = static_cast<double>(position) * slope[c < count ? c : 0];
            cosine_and_sine(inverse ? -angle : angle, cosines[i], sines[i]);
            cosines[i] *= magnitude;
            sines[i] *= magnitude;
        }
        b.sync();
        for (int item = b.thread(); item < items; item += b.threads()) {
            const Place p = place(row, item);
            float a[run], z[run], first_half[run], second_half[run];
            if (x.wide) {
                x.unpack(one, a);
                x.unpack(other, z);
                fetch(item + b.threads());
            } else {
                AnyIn single = x;
                single.wide = false;
                single.load(p.at, p.left, a);
                single.load(p.at + half, p.left, z);
            }
            const Words* cosine = reinterpret_cast<const Words*>(cosines + p.angle);
            const Words* sine = reinterpret_cast<const Words*>(sines + p.angle);
#pragma unroll
            for (int k = 0; k < run; k += 4) {
                const Words c = cosine[k / 4], s = sine[k / 4];
#pragma unroll
                for (int l = 0; l < 4; ++l) {
                    const float cl = std::bit_cast<float>(c.w[l]), sl = std::bit_cast<float>(s.w[l]);
                    first_half[k + l] = a[k + l] * cl - z[k + l] * sl;
                    second_half[k + l] = z[k + l] * cl + a[k + l] * sl;
                }
            }
            y.store(p.at, p.left, first_half);
            y.store(p.at + half, p.left, second_half);
        }
    }
};

void rope(kernels::Context& context, const Rope& s, In x, const std::int32_t* positions, Out y) {
    Call& call = call_of(context);
    const i64 half = s.dim / 2, rows = s.batch * s.seq;
    for (i64 first = 0; first < half; first += Rotate::most_slopes) {
        const i64 left = half - first, count = left < Rotate::most_slopes ? left : Rotate::most_slopes;
        const i64 a_row = s.heads * divide_up(count, run);
        Rotate body{AnyIn(x, half % run == 0 && aligned(x.data)),
                    AnyOut(y, half % run == 0 && aligned(y.data)),
                    rows,
                    s.seq,
                    s.start,
                    1,
                    static_cast<int>(s.heads),
                    static_cast<int>(s.dim),
                    static_cast<int>(first),
                    static_cast<int>(count),
                    s.inverse,
                    static_cast<float>(s.magnitude),
                    positions,
                    {}};
        // Two runs a thread, in at most 16 KiB of angles.
        while (body.each < 16 && body.each * a_row < 2 * Rotate::threads) body.each *= 2;
        for (i64 c = 0; c < count; ++c) body.slope[c] = turn(s, first + c);
        const i64 threads = divide_up(body.each * a_row, 32) * 32, room = body.each * divide_up(count, run) * run * 8;
        launch(call, divide_up(rows, body.each), body, room,
               static_cast<int>(threads < Rotate::threads ? threads : Rotate::threads));
    }
}

}  // namespace

void add_tokens(Kernels& k) {
    k.embedding = embedding;
    k.embedding_grad = embedding_grad;
    k.rope = rope;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
