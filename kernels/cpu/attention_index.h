// Which keys a query sees in attention by documents and positions, without a mask of queries by keys: for each query
// the smallest span with all keys that it sees, for each tile of keys the bounds of their documents and positions.
#pragma once

#include "kernels/attention_bounds.h"
#include "kernels/cpu/micro.h"
#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

constexpr i64 block_q = 66, block_k = 256;
constexpr i64 tile_k = 64;  ///< keys that are skipped together; a multiple of micro_cols

ORRERY_INLINE i64 larger(i64 a, i64 b) { return a > b ? a : b; }

/// Keys or rows begin .. end - 1.
struct Part {
    i64 begin, end;

    ORRERY_INLINE bool empty() const { return begin >= end; }
};

/// Keys begin .. end - 1, of which a query sees `seen`: the first and the last, but between them there may be gaps.
struct Span {
    std::int32_t begin = 0, end = 0, seen = 0;

    ORRERY_INLINE bool gaps() const { return seen < end - begin; }
    /// Adds keys after these.
    ORRERY_INLINE void add(Span o) {
        if (o.seen > 0) *this = {seen > 0 ? begin : o.begin, o.end, seen + o.seen};
    }
};

/// One row of the batch.
struct Indexed {
    const Attention& s;
    AttentionIndex at;  ///< of this row
    Bounds* tiles;      ///< [keys / tile_k, rounded up]
    Span* spans;        ///< [queries]

    ORRERY_INLINE Bounds sought(i64 i) const { return sought_by(s, at.documents[i], at.positions[i]); }
    ORRERY_INLINE void bound(i64 tile) const {
        Bounds all;
        for (i64 j = tile * tile_k, end = smaller(j + tile_k, s.keys); j < end; ++j)
            all.add(place_of(at.key_documents[j], at.key_positions[j]));
        tiles[tile] = all;
    }

    /// Those of the keys begin .. end - 1, of one tile, that query i sees.
    [[gnu::noinline]] Span look(i64 i, i64 begin, i64 end) const {
        const Bounds &tile = tiles[begin / tile_k], by = sought(i);
        if (!by.meet(tile)) return {};
        const auto b = static_cast<std::int32_t>(begin), e = static_cast<std::int32_t>(end);
        if (tile.within(by)) return {b, e, e - b};
        Span found{e, b, 0};
        for (std::int32_t j = b; j < e; ++j) {
            const bool sees = by.sees(at.key_documents[j], at.key_positions[j]);
            const std::int32_t from = sees ? j : e, to = sees ? j + 1 : b;
            found.begin = from < found.begin ? from : found.begin;
            found.end = to > found.end ? to : found.end;
            found.seen += sees;
        }
        return found.seen > 0 ? found : Span{};
    }
    /// Like look(), but reads keys only if the span of query i has gaps. Call find() first.
    ORRERY_INLINE Span part(i64 i, i64 begin, i64 end) const {
        const Span& all = spans[i];
        begin = larger(begin, all.begin), end = smaller(end, all.end);
        if (begin >= end) return {};
        if (all.gaps()) return look(i, begin, end);
        const auto b = static_cast<std::int32_t>(begin), e = static_cast<std::int32_t>(end);
        return {b, e, e - b};
    }

    /// Fills the spans of the queries i .. i + rows - 1, after all tiles were bound.
    void find(i64 i, i64 rows) const {
        Bounds all;
        for (i64 r = i; r < i + rows; ++r) {
            all.add(sought(r));
            spans[r] = {};
        }
        for (i64 j = 0; j < s.keys; j += tile_k) {
            if (!all.meet(tiles[j / tile_k])) continue;
            for (i64 r = i; r < i + rows; ++r) spans[r].add(look(r, j, smaller(j + tile_k, s.keys)));
        }
    }
    /// The keys from the first to the last that one of these queries sees.
    Part keys_of(i64 i, i64 rows) const {
        Part all{s.keys, 0};
        for (i64 r = i; r < i + rows; ++r) {
            if (spans[r].seen > 0) all = {smaller(all.begin, spans[r].begin), larger(all.end, spans[r].end)};
        }
        return all.empty() ? Part{0, 0} : all;
    }
};

/// What the rows of a block of scores see by index, the queries from i on and the keys from j on.
struct Sights {
    const Indexed* of = nullptr;
    i64 i = 0, j = 0, n = 0;              ///< n: keys up to the last that a row sees
    Span row[block_q];                    ///< keys of the block that a row sees
    Part keys[block_q / micro_rows];      ///< the same of six rows
    Part rows[block_k / micro_rows + 1];  ///< the rows that see one of six keys

    /// Adds tiles of keys from `key` to `end`, up to the first of which no row sees a key; n = 0 if that is the first.
    void fill(const Indexed& indexed, i64 query, i64 count, i64 key, i64 end) {
        of = &indexed, i = query, j = key, n = 0;
        for (i64 r = 0; r < count; ++r) row[r] = {};
        end = smaller(end, j + block_k);
        bool any = true;
        for (i64 at = j; any && at < end; at += tile_k) {
            any = false;
            for (i64 r = 0; r < count; ++r) {
                const Span found = indexed.part(i + r, at, smaller(at + tile_k, end));
                row[r].add(found);
                any = any || found.seen > 0;
                n = larger(n, found.end - j);
            }
        }
        if (n > 0) group(count);
    }
    /// Sets the scores of row r in the gaps of its span to -infinity.
    void mask(i64 r, float* scores) const {
        const Bounds by = of->sought(i + r);
        for (std::int32_t l = row[r].begin; l < row[r].end; ++l) {
            const bool sees = by.sees(of->at.key_documents[j + l], of->at.key_positions[j + l]);
            scores[l] = sees ? scores[l] : -__builtin_inff();
        }
    }

private:
    void group(i64 count) {
        for (Part& p : keys) p = {n, 0};
        for (Part& p : rows) p = {count, 0};
        for (i64 r = 0; r < count; ++r) {
            if (row[r].seen == 0) continue;
            row[r].begin -= static_cast<std::int32_t>(j), row[r].end -= static_cast<std::int32_t>(j);
            Part& all = keys[r / micro_rows];
            all = {smaller(all.begin, row[r].begin), larger(all.end, row[r].end)};
            for (i64 g = row[r].begin / micro_rows; g * micro_rows < row[r].end; ++g)
                rows[g] = {smaller(rows[g].begin, r), r + 1};
        }
    }
};

}  // namespace orrery::kernels::cpu::ORRERY_ISA
