#pragma once
#include <cstdint>
#include <vector>

#include "orrery/device.h"
#include "orrery/plan.h"

namespace orrery {

/// A buffer of `bytes` bytes that is in use from instruction `first` to instruction `last`, both included.
struct Lifetime {
    int64_t bytes = 0;
    int first = 0;
    int last = 0;
};

struct Placed {
    std::vector<int64_t> offsets;  ///< by lifetime: bytes from the start of the arena; multiples of 64
    int64_t bytes = 0;             ///< size of the arena
    int64_t floor = 0;             ///< max bytes alive at once: a lower bound for any placement
};

/// Assigns each lifetime an offset in one arena, so that lifetimes that overlap in time do not overlap in space. Takes
/// the best of best fit forwards in time, best fit backwards, and for up to 3000 buffers greedy-by-size (Pisarchyk,
/// Lee: Efficient Memory Management for Deep Neural Net Inference, 2020). O(n log n), but greedy-by-size is quadratic.
Placed place_buffers(const std::vector<Lifetime>& lifetimes);

/// The lifetime of each pool of Frames, as one buffer with all its slots, from the first access to the last.
std::vector<Lifetime> pool_lifetimes(const RankClass& c);

constexpr int64_t arena_alignment = 64;
constexpr int64_t aligned(int64_t bytes, int64_t to = arena_alignment) { return (bytes + to - 1) / to * to; }
/// Extra bytes of a workspace, so that it can start at a multiple of scratch_alignment anywhere in its buffer.
constexpr int64_t slack(const Buffer& buffer) {
    return buffer.use == BufferUse::workspace ? scratch_alignment - arena_alignment : 0;
}

}  // namespace orrery
