#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "orrery/layout.h"

namespace orrery {

/// A piece of a row-major array.
struct Piece {
    Shape offset;  ///< first index, one per dim
    Shape shape;
};

/// The block of a value that one rank holds (of one micro-batch).
Piece block_of(const Layout& layout, const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro = 0);

/// Whether this rank is the first of those that hold the same block: who writes it into a checkpoint. Partial axes
/// count as replicated.
bool first_holder(const Layout& layout, const Mesh& mesh, int64_t rank);

/// Calls run(global, local, count) for each contiguous run, in order: elements [global, global + count) of the whole
/// array are elements [local, local + count) of the block. Trailing dims that the block has whole are joined.
void for_each_run(const Shape& global, const Piece& block,
                  const std::function<void(int64_t global, int64_t local, int64_t count)>& run);

/// Copies a block out of the whole array (host memory, `item` bytes per element, both dense).
void slice(const void* global, const Shape& global_shape, const Piece& block, int64_t item, void* local);
/// Copies a block back into the whole array.
void place(void* global, const Shape& global_shape, const Piece& block, int64_t item, const void* local);

/// The whole array from the blocks of all ranks: locals[rank]. Of equal blocks the first holder's is taken. The layout
/// must have no Partial and not split over the sequential axis.
void assemble(void* global, const Shape& global_shape, const Layout& layout, const Mesh& mesh, int64_t item,
              std::span<const void* const> locals);

}  // namespace orrery
