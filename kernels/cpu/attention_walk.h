// The blocks of scores that attention visits: only those in which a query sees a key.
#pragma once

#include "kernels/cpu/vec.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

constexpr i64 block_q = 66, block_k = 256;

ORRERY_INLINE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
ORRERY_INLINE i64 larger(i64 a, i64 b) { return a > b ? a : b; }

/// Query i sees the keys first_key(s, i) .. visible(s, i) - 1.
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
    bool first;  ///< the first block of its queries

    /// Row r sees the keys from(r) .. seen(r) - 1 of this block.
    ORRERY_INLINE i64 from(i64 r) const { return larger(0, smaller(first_key(s, i + r) - j, n)); }
    ORRERY_INLINE i64 seen(i64 r) const { return larger(0, smaller(visible(s, i + r) - j, n)); }
    /// The rows first_row(l) .. end_row(l) - 1 see key l of this block.
    ORRERY_INLINE i64 first_row(i64 l) const { return s.causal ? larger(0, j + l - s.shift - i) : 0; }
    ORRERY_INLINE i64 end_row(i64 l) const {
        return s.window > 0 ? smaller(rows, j + l - s.shift + s.window - i) : rows;
    }
};

/// Calls begin(Queries) for each block of queries, visit(Block) for each of its blocks of scores, then end(Queries).
template <class Begin, class Visit, class End>
ORRERY_INLINE void walk(const Attention& s, Begin begin, Visit visit, End end) {
    constexpr i64 step = 2 * width;
    for (i64 i = 0; i < s.queries; i += block_q) {
        const i64 rows = smaller(block_q, s.queries - i);
        const i64 first = first_key(s, i), last = visible(s, i + rows - 1);
        const Queries q{i, rows, first < last ? first / step * step : last, last};
        begin(q);
        for (i64 j = q.begin; j < q.end; j += block_k)
            visit(Block{s, i, rows, j, smaller(block_k, q.end - j), j == q.begin});
        end(q);
    }
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
