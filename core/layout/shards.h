#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "orrery/layout.h"

namespace orrery {

/// A rectangular part of a tensor: the index of its first element and its size, one entry per dim.
struct Block {
    Shape offset;
    Shape shape;

    int64_t count() const { return count_of(shape); }
    /// "[0,512]+[8,512]"
    std::string text() const { return text_of(offset) + "+" + text_of(shape); }
    bool operator==(const Block&) const = default;
};

/// What two parts of one tensor share; nullopt when they share nothing.
std::optional<Block> intersect(const Block& a, const Block& b);

/// Visits `part` of two dense row-major blocks of one tensor, both of which contain it, in runs that are contiguous in
/// both: element index in `from`, element index in `to`, count. Runs ascend in both. The fewest runs there are.
void for_runs(const Block& part, const Block& from, const Block& to,
              const std::function<void(int64_t, int64_t, int64_t)>& visit);

/// All of an array.
Block whole(const Shape& global);

/// The block of a value that one rank holds (of one micro-batch).
Block block_of(const Layout& layout, const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro = 0);

/// Whether this rank is the first of those that hold the same block: who writes it into a checkpoint. Partial axes
/// count as replicated.
bool first_holder(const Layout& layout, const Mesh& mesh, int64_t rank);

/// Copies a block out of the whole array (host memory, `item` bytes per element, both dense).
void slice(const void* global, const Shape& global_shape, const Block& block, int64_t item, void* local);
/// Copies a block back into the whole array.
void place(void* global, const Shape& global_shape, const Block& block, int64_t item, const void* local);

}  // namespace orrery
