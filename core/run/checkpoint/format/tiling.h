#pragma once
#include <span>

#include "layout/shards.h"

namespace orrery {

struct Tiling {
    bool exact = false;   ///< every element lies in one of the boxes, none in two
    int64_t visited = 0;  ///< corners that were looked at
};

/// Whether boxes, each inside of a tensor of this shape, cover it once. O(n log n) in the boxes' corners: 2 to the
/// power of the dims that are cut. Throws Error when these are more than 2^26.
Tiling tiling_of(const Shape& shape, std::span<const Block> boxes);

}  // namespace orrery
