// Keys that order floats with their index, and a heap of them, for choices of the largest.
#pragma once

#include <bit>

#include "kernels/cpu/vec.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

/// Keys in the order of top_k, larger first: NaN above all numbers, -0 as 0, equal ones by index.
ORRERY_INLINE std::uint64_t rank_key(float x, i64 index) {
    auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7fffffffu) == 0) bits = 0;
    const std::uint32_t order = x != x ? ~0u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return std::uint64_t{order} << 32 | (~static_cast<std::uint32_t>(index));
}
ORRERY_INLINE i64 index_of(std::uint64_t key) { return ~static_cast<std::uint32_t>(key); }

/// Restores the heap property at heap[at]; the root of the n keys is the smallest.
inline void sift(std::uint64_t* heap, i64 at, i64 n) {
    const std::uint64_t key = heap[at];
    for (i64 child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child]) ++child;
        if (heap[child] >= key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
