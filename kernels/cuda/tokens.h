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

// The gradient sorts (row, place) pairs by row, keeping the order of places, and adds up each row's places in that
// order: 8 bits a pass, a tile of 256 pairs a block.
constexpr int digits = 256;

struct Pair {
    std::uint32_t row, place;
};

/// Pairs of the tokens; those without a row here get row s.rows, behind all others.
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

/// counts[digit, tile]: how many pairs of the tile have the digit.
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

/// Each count becomes the sum of those before it; one block.
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

/// Each pair goes behind those of smaller digits, earlier tiles and earlier places of its own tile.
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

/// Adds dy over equal rows within 32 sorted places. Rows that reach over an end of them leave their sum in `edges`
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

/// The rows that reach over several blocks: the block in which one begins adds up its edges in order.
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

/// Sorted pairs of the tokens, in one of two buffers.
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

/// Cosines and sines [seq, half] of all angles, in double until the end: positions are long, floats are not.
struct Angles {
    static constexpr int threads = 128;
    static constexpr bool barriers = false;
    Rope s;
    float* table;  ///< cosine, sine
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 half = s.dim / 2, i = b.index() * threads + b.thread();
        if (i >= s.seq * half) return;
        const double slow = pow(s.theta, -2.0 * static_cast<double>(i % half) / static_cast<double>(s.dim));
        const double angle = static_cast<double>(i / half + s.start) * slow;
        table[i * 2] = static_cast<float>(cos(angle));
        table[i * 2 + 1] = static_cast<float>(s.inverse ? -sin(angle) : sin(angle));
    }
};

/// Each thread turns one run of pairs (x[i], x[i + half]) of one head.
struct Rotate {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Rope s;
    AnyIn x;
    AnyOut y;
    const float* table;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 half = s.dim / 2, runs = (half + run - 1) / run, n = s.batch * s.seq * s.heads * runs;
        for (i64 i = b.index() * threads + b.thread(); i < n; i += b.blocks() * threads) {
            const i64 row = i / runs, c = i % runs * run, time = row / s.heads % s.seq, left = half - c;
            float first[run], second[run];
            x.load(row * s.dim + c, left, first);
            x.load(row * s.dim + half + c, left, second);
            const float* angle = table + (time * half + c) * 2;
#pragma unroll
            for (int l = 0; l < run; ++l) {
                if (l >= left) continue;
                const float cosine = angle[l * 2], sine = angle[l * 2 + 1], a = first[l], z = second[l];
                first[l] = a * cosine - z * sine;
                second[l] = z * cosine + a * sine;
            }
            y.store(row * s.dim + c, left, first);
            y.store(row * s.dim + half + c, left, second);
        }
    }
};

void rope(kernels::Context& context, const Rope& s, In x, Out y) {
    Call& call = call_of(context);
    float* table = call.take_array<float>(s.seq * s.dim);
    launch(call, divide_up(s.seq * s.dim / 2, Angles::threads), Angles{s, table});
    const i64 half = s.dim / 2;
    const Rotate body{s, AnyIn(x, aligned_rows(x.data, x.type, half)), AnyOut(y, aligned_rows(y.data, y.type, half)),
                      table};
    launch(call, blocks_for(call, s.batch * s.seq * s.heads * divide_up(half, run), Rotate::threads), body);
}

}  // namespace

void add_tokens(Kernels& k) {
    k.embedding = embedding;
    k.embedding_grad = embedding_grad;
    k.rope = rope;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
