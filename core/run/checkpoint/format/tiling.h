#pragma once
#include <span>

#include "layout/shards.h"

namespace orrery {

struct Tiling {
    bool exact = false;   ///< whether every element is in exactly one box
    int64_t visited = 0;  ///< number of corners compared, a measure of the work
};

/// Whether boxes, each inside of a tensor of this shape, cover every element exactly once. O(n log n) in the number of
/// corners: 2^d per box, where d counts the dims that some box does not span. Throws Error above 2^22 corners.
Tiling tiling_of(const Shape& shape, std::span<const Block> boxes);

}  // namespace orrery
