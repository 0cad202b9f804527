#pragma once
#include <cstdint>
#include <vector>

#include "orrery/device.h"
#include "orrery/plan.h"

namespace orrery {

/// Bytes that are in use from instruction `first` to instruction `last`, both included.
struct Lifetime {
    int64_t bytes = 0;
    int first = 0;
    int last = 0;
};

struct Placed {
    std::vector<int64_t> offsets;  ///< one per lifetime, multiples of 64
    int64_t bytes = 0;             ///< of the arena
    int64_t floor = 0;             ///< most bytes alive at once: no placement needs less
};

/// Gives every lifetime a place in one arena; those that overlap in time do not overlap in space. O(n log n): the
/// better of two orders of best fit, and for small plans of greedy-by-size (Pisarchyk, Lee: Efficient Memory
/// Management for Deep Neural Net Inference, 2020), which is quadratic.
Placed place_buffers(const std::vector<Lifetime>& lifetimes);

/// Of the slots of each pool of Frames together, from the first touch to the last.
std::vector<Lifetime> pool_lifetimes(const RankClass& c);

constexpr int64_t arena_alignment = 64;
constexpr int64_t aligned(int64_t bytes, int64_t to = arena_alignment) { return (bytes + to - 1) / to * to; }
/// What a workspace gets beside its bytes, so that it can begin at a multiple of scratch_alignment inside its place.
constexpr int64_t slack(const Buffer& buffer) {
    return buffer.use == BufferUse::workspace ? scratch_alignment - arena_alignment : 0;
}

}  // namespace orrery
