// The blocks of scores that attention visits: only those in which a query sees a key.
#pragma once

#include "kernels/cpu/attention_index.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

/// Without indices query i sees the keys first_key(s, i) .. visible(s, i) - 1.
ORRERY_INLINE i64 visible(const Attention& s, i64 i) {
    return s.causal ? larger(0, smaller(i + s.shift + 1, s.keys)) : s.keys;
}
ORRERY_INLINE i64 first_key(const Attention& s, i64 i) {
    return s.window > 0 ? larger(0, smaller(i + s.shift + 1 - s.window, s.keys)) : 0;
}

/// A block of queries with the range of keys that they are multiplied by, empty when no query sees one. The range
/// begins at a multiple of a vector, so that a product's last columns stay in their row.
struct Queries {
    i64 i, rows, begin, end;
};

/// A block of scores: rows i.. of the queries, keys j.. .
struct Block {
    const Attention& s;
    i64 i, rows, j, n;
    bool first;                      ///< the first block of its queries
    const Sights* sights = nullptr;  ///< by index: what its rows see

    /// Row r sees the keys from(r) .. seen(r) - 1 of this block, by index but for gaps.
    ORRERY_INLINE i64 from(i64 r) const {
        return sights ? sights->row[r].begin : larger(0, smaller(first_key(s, i + r) - j, n));
    }
    ORRERY_INLINE i64 seen(i64 r) const {
        return sights ? sights->row[r].end : larger(0, smaller(visible(s, i + r) - j, n));
    }
    ORRERY_INLINE bool gaps(i64 r) const { return sights && sights->row[r].gaps(); }
    /// Without indices the rows first_row(l) .. end_row(l) - 1 see key l of this block.
    ORRERY_INLINE i64 first_row(i64 l) const { return s.causal ? larger(0, j + l - s.shift - i) : 0; }
    ORRERY_INLINE i64 end_row(i64 l) const {
        return s.window > 0 ? smaller(rows, j + l - s.shift + s.window - i) : rows;
    }
    /// The keys that a row of first .. last sees; the rows that see a key of first .. last. Six of them at most, the
    /// first a multiple of six.
    ORRERY_INLINE Part keys_of(i64 first, i64 last) const {
        return sights ? sights->keys[first / micro_rows] : Part{from(first), seen(last)};
    }
    ORRERY_INLINE Part rows_of(i64 first, i64 last) const {
        return sights ? sights->rows[first / micro_rows] : Part{first_row(first), end_row(last)};
    }
};

/// Calls begin(Queries) for each block of queries, visit(Block) for each of its blocks of scores, then end(Queries).
/// `indexed`: the row of the batch, null without indices.
template <class Begin, class Visit, class End>
ORRERY_INLINE void walk(const Attention& s, const Indexed* indexed, Begin begin, Visit visit, End end) {
    constexpr i64 step = 2 * width;
    Sights sights;
    for (i64 i = 0; i < s.queries; i += block_q) {
        const i64 rows = smaller(block_q, s.queries - i);
        const Part keys = indexed ? indexed->keys_of(i, rows) : Part{first_key(s, i), visible(s, i + rows - 1)};
        const i64 unit = indexed ? tile_k : step;
        const Queries q{i, rows, keys.empty() ? keys.end : keys.begin / unit * unit, keys.end};
        begin(q);
        bool first = true;
        for (i64 j = q.begin, next; j < q.end; j = next) {
            i64 n = smaller(block_k, q.end - j);
            next = j + block_k;
            if (indexed) {
                sights.fill(*indexed, i, rows, j, q.end);
                n = sights.n;
                next = j + larger(tile_k, (n + tile_k - 1) / tile_k * tile_k);
            }
            if (n == 0) continue;
            visit(Block{s, i, rows, j, n, first, indexed ? &sights : nullptr});
            first = false;
        }
        end(q);
    }
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
