#pragma once
#include <cstdint>
#include <vector>

#include "orrery/device.h"
#include "orrery/plan.h"

namespace orrery {

/// A buffer to be placed, and the first and last instruction that use it.
struct Lifetime {
    int64_t bytes = 0;
    int first = 0;
    int last = 0;
};

struct Placed {
    std::vector<int64_t> offsets;  ///< by lifetime: offset in bytes from the start of the arena, a multiple of 64
    int64_t bytes = 0;
    int64_t floor = 0;  ///< max bytes in use at once; no placement needs less
};

/// Gives each buffer an offset in one arena; buffers in use at the same time do not overlap. Takes the smallest of best
/// fit forwards in time, best fit backwards, and for up to 3000 buffers greedy-by-size (Pisarchyk, Lee: Efficient
/// Memory Management for Deep Neural Net Inference, 2020). O(n log n), but greedy-by-size is quadratic.
Placed place_buffers(const std::vector<Lifetime>& lifetimes);

/// By pool of Frames: its size with all slots, and when it is in use.
std::vector<Lifetime> pool_lifetimes(const RankClass& c);

constexpr int64_t arena_alignment = 64;
constexpr int64_t aligned(int64_t bytes, int64_t to = arena_alignment) { return (bytes + to - 1) / to * to; }
/// Extra bytes of a workspace's buffer, so that the workspace can start at a multiple of scratch_alignment.
constexpr int64_t slack(const Buffer& buffer) {
    return buffer.use == BufferUse::workspace ? scratch_alignment - arena_alignment : 0;
}

}  // namespace orrery
