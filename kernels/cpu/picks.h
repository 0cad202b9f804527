// Sums by index, for scatter_add and the embedding's gradient.
#pragma once

#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

/// The part of sums [outer, size, inner] that one thread owns. It walks all picks that may add to it, so no two threads
/// write to the same sum, and additions are in the order of the picks.
struct Owned {
    i64 outer[2], rows[2], inner[2];

    /// Cuts along the outermost dim that has work for all threads.
    Owned(const Along& s, int parts, int part) : outer{0, s.outer}, rows{0, s.size}, inner{0, s.inner} {
        const auto take = [&](i64(&range)[2], i64 unit) {
            const i64 n = range[1];
            range[0] = cut(n, parts, part, unit);
            range[1] = cut(n, parts, part + 1, unit);
        };
        if (s.outer >= parts) {
            take(outer, 1);
        } else if (s.inner >= 32 * parts) {
            take(inner, 16);
        } else {
            take(rows, 1);
        }
    }
    bool has(i64 row) const { return row >= rows[0] && row < rows[1]; }
};

/// Adds v: elements of picks from `pick` on, starting with column `first`, one id an element.
inline void add_elements(const Picks& s, const Owned& own, i64 o, const std::int32_t* ids, const float* v, i64 n,
                         i64 first, float* sums) {
    float* const slab = sums + o * s.x.size * s.x.inner;
    i64 column = first;
    for (i64 e = 0; e < n; ++e) {
        const i64 row = ids[e] - s.start;
        if (own.has(row)) slab[row * s.x.inner + column] += v[e];
        if (++column == own.inner[1]) column = own.inner[0];
    }
}

inline void add_owned(const Picks& s, const Owned& own, In x, const std::int32_t* ids, float* sums) {
    const i64 inner = s.x.inner, width = own.inner[1] - own.inner[0];
    float buffer[tile];
    // Whole picks are contiguous: add several at once when they are short.
    const i64 group = !s.rows && width == inner && inner < tile ? tile / inner : 1;
    for (i64 o = own.outer[0]; o < own.outer[1]; ++o) {
        for (i64 j = 0; j < s.picks; j += group) {
            const i64 pick = o * s.picks + j, together = s.picks - j < group ? s.picks - j : group;
            const i64 row = s.rows ? ids[pick] - s.start : 0;
            if (s.rows && !own.has(row)) continue;
            for (i64 i = own.inner[0]; i < own.inner[1]; i += tile) {
                const i64 left = (own.inner[1] - i) * together, size = left < tile ? left : tile;
                const float* v = fetch(x, pick * inner + i, size, buffer);
                if (s.rows) {
                    float* to = sums + (o * s.x.size + row) * inner + i;
                    map(
                        to, size, [](Vec a, Vec b) { return a + b; }, to, v);
                } else {
                    add_elements(s, own, o, ids + pick * inner + i, v, size, i, sums);
                }
            }
        }
    }
}

/// sums [outer, size, inner] = or += sums of x by ids.
inline void add_picks(Context& c, const Picks& s, In x, const std::int32_t* ids, float* sums) {
    const i64 added = s.x.outer * s.picks * s.x.inner, held = s.x.outer * s.x.size * s.x.inner;
    const int parts = parts_of(c.threads(), added + (s.accumulate ? 0 : held), grain);
    team(parts, [&](int part) {
        const Owned own(s.x, parts, part);
        for (i64 o = own.outer[0]; o < own.outer[1] && !s.accumulate; ++o) {
            const i64 width = own.inner[1] - own.inner[0], rows = width == s.x.inner ? own.rows[1] - own.rows[0] : 1;
            for (i64 r = own.rows[0]; r < own.rows[1]; r += rows)
                zero(sums + (o * s.x.size + r) * s.x.inner + own.inner[0], rows * width);
        }
        add_owned(s, own, x, ids, sums);
    });
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
