// GEMMs of rows by the matrix of their expert, in tiles of 64 x 64 with f32 sums. Blocks read the counts themselves:
// there is a block for each tile that full slabs would need, and those without rows only write zeros.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// A tile of a result for a block of 16 x 16 threads, 16 of the contracted dim at a time. Thread t sums rows
/// t / 16 * 4 + i and columns t % 16 + j * 16.
struct GroupedTile {
    static constexpr int threads = 256, side = 64, depth = 16;
    static constexpr i64 shared_bytes = 2 * depth * (side + 1) * 4;
    float sum[4][4] = {};

    /// Adds a b of `size` contracted elements: a(r, l) and b(l, c) are 0 outside their operand. a_rows, b_cols: r, c
    /// are adjacent in memory, otherwise l; adjacent threads read adjacent elements.
    template <class A, class B>
    ORRERY_DEVICE void add(const Block& block, i64 size, bool a_rows, bool b_cols, A a, B b) {
        auto* left = block.shared<float>();        // [depth, side + 1]
        float* right = left + depth * (side + 1);  // [depth, side + 1]
        const int row = block.thread() / 16 * 4, col = block.thread() % 16;
        for (i64 from = 0; from < size; from += depth) {
            block.sync();
            for (int i = block.thread(); i < side * depth; i += threads) {
                const int la = a_rows ? i / side : i % depth, r = a_rows ? i % side : i / depth;
                const int lb = b_cols ? i / side : i % depth, c = b_cols ? i % side : i / depth;
                left[la * (side + 1) + r] = from + la < size ? a(r, from + la) : 0.0f;
                right[lb * (side + 1) + c] = from + lb < size ? b(from + lb, c) : 0.0f;
            }
            block.sync();
            for (int l = 0; l < depth; ++l) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        sum[i][j] += left[l * (side + 1) + row + i] * right[l * (side + 1) + col + j * 16];
                }
            }
        }
    }
    /// Calls put(row, column, sum) for this thread's elements of the tile.
    template <class F>
    ORRERY_DEVICE void each(const Block& block, F put) const {
        const int row = block.thread() / 16 * 4, col = block.thread() % 16;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) put(row + i, col + j * 16, sum[i][j]);
        }
    }
};

/// The rows of one tile: `count` rows of an expert from `first` on, then `zeros` rows that do not count.
struct TileRows {
    i64 expert = 0, first = 0, count = 0, zeros = 0;
};

struct GroupedRows {
    static constexpr int threads = GroupedTile::threads;
    static constexpr bool barriers = true;
    GroupedMatmul s;
    AnyIn x, w;
    const std::int32_t* counts;
    AnyOut y;
    i64 tiles_n, tiles_slab;  // tiles of the columns, and of the rows of a slab

    /// Row tiles of all experts. Sorted: the last one of each expert, and of the zeros, may be partly full.
    static i64 row_tiles(const GroupedMatmul& s) {
        return s.sorted ? s.slots / GroupedTile::side + s.experts + 1
                        : s.groups * s.experts * divide_up(s.slots, GroupedTile::side);
    }
    ORRERY_DEVICE TileRows rows_of(i64 tile) const {
        constexpr i64 side = GroupedTile::side;
        if (!s.sorted) {
            const i64 slab = tile / tiles_slab, from = tile % tiles_slab * side;
            const ExpertRows rows = expert_rows(s, counts, slab / s.experts, slab % s.experts);
            const i64 held = smaller(s.slots - from, side), count = smaller(larger(rows.count - from, 0), held);
            return {slab % s.experts, rows.first + from, count, held - count};
        }
        i64 first = 0;
        for (i64 e = 0; e < s.experts; ++e) {
            const i64 count = smaller(larger(counts[e], 0), s.slots - first), tiles = (count + side - 1) / side;
            if (tile < tiles) return {e, first + tile * side, smaller(count - tile * side, side), 0};
            tile -= tiles;
            first += count;
        }
        first += tile * side;
        return {0, first, 0, larger(smaller(s.slots - first, side), 0)};
    }
    ORRERY_DEVICE void operator()(const Block& block) const {
        const i64 tile_n = block.index() % tiles_n * GroupedTile::side;
        const TileRows rows = rows_of(block.index() / tiles_n);
        const i64 matrix = rows.expert * s.k * s.n;
        GroupedTile tile;
        if (rows.count > 0) {
            tile.add(
                block, s.k, false, !s.trans_b,
                [&](i64 r, i64 l) { return r < rows.count ? x.at((rows.first + r) * s.k + l) : 0.0f; },
                [&](i64 l, i64 c) {
                    if (tile_n + c >= s.n) return 0.0f;
                    return w.at(matrix + (s.trans_b ? (tile_n + c) * s.k + l : l * s.n + tile_n + c));
                });
        }
        // Sums of rows that do not count are 0.
        tile.each(block, [&](i64 r, i64 c, float sum) {
            if (r < rows.count + rows.zeros && tile_n + c < s.n) y.put((rows.first + r) * s.n + tile_n + c, sum);
        });
    }
    ORRERY_DEVICE static i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
    ORRERY_DEVICE static i64 larger(i64 a, i64 b) { return a > b ? a : b; }
};

/// A tile of dw of one expert, over its rows in all groups, in the order of the groups.
struct GroupedWeights {
    static constexpr int threads = GroupedTile::threads;
    static constexpr bool barriers = true;
    GroupedMatmul s;
    AnyIn x, dy;
    const std::int32_t* counts;
    AnyOut dw;
    i64 tiles_k, tiles_n;
    ORRERY_DEVICE void operator()(const Block& block) const {
        const i64 tile_n = block.index() % tiles_n * GroupedTile::side;
        const i64 tile_k = block.index() / tiles_n % tiles_k * GroupedTile::side;
        const i64 expert = block.index() / tiles_n / tiles_k;
        GroupedTile tile;
        for (i64 g = 0; g < s.groups; ++g) {
            const ExpertRows rows = expert_rows(s, counts, g, expert);
            tile.add(
                block, rows.count, true, true,
                [&](i64 r, i64 l) { return tile_k + r < s.k ? x.at((rows.first + l) * s.k + tile_k + r) : 0.0f; },
                [&](i64 l, i64 c) { return tile_n + c < s.n ? dy.at((rows.first + l) * s.n + tile_n + c) : 0.0f; });
        }
        tile.each(block, [&](i64 r, i64 c, float sum) {
            if (tile_k + r < s.k && tile_n + c < s.n)
                dw.put((expert * s.k + tile_k + r) * s.n + tile_n + c, sum, s.accumulate);
        });
    }
};

void grouped_matmul(kernels::Context& context, const GroupedMatmul& s, In x, In w, const std::int32_t* counts, Out y) {
    const i64 tiles_n = divide_up(s.n, GroupedTile::side), tiles_slab = divide_up(s.slots, GroupedTile::side);
    const GroupedRows body{s, AnyIn(x, false), AnyIn(w, false), counts, AnyOut(y, false), tiles_n, tiles_slab};
    launch(call_of(context), GroupedRows::row_tiles(s) * tiles_n, body, GroupedTile::shared_bytes);
}

void grouped_matmul_dw(kernels::Context& context, const GroupedMatmul& s, In x, In dy, const std::int32_t* counts,
                       Out dw) {
    const i64 tiles_k = divide_up(s.k, GroupedTile::side), tiles_n = divide_up(s.n, GroupedTile::side);
    const GroupedWeights body{s, AnyIn(x, false), AnyIn(dy, false), counts, AnyOut(dw, false), tiles_k, tiles_n};
    launch(call_of(context), s.experts * tiles_k * tiles_n, body, GroupedTile::shared_bytes);
}

}  // namespace

void add_grouped_matmul(Kernels& k) {
    k.grouped_matmul = grouped_matmul;
    k.grouped_matmul_dw = grouped_matmul_dw;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
