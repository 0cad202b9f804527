#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "orrery/layout.h"
#include "orrery/program.h"

namespace orrery {

/// A rectangular block of a tensor: index of its first element and sizes, by dim.
struct Block {
    Shape offset;
    Shape shape;

    int64_t count() const { return count_of(shape); }
    std::string text() const { return text_of(offset) + "+" + text_of(shape); }
    bool operator==(const Block&) const = default;
};

/// Returns the part that two blocks of one tensor share; nullopt when they do not overlap.
std::optional<Block> intersect(const Block& a, const Block& b);

/// Visits block `part` of a tensor in maximal runs that are contiguous in two dense row-major blocks, which contain it.
/// `visit` gets the element index in `from`, the index in `to`, and the number of elements. Indices ascend.
void for_runs(const Block& part, const Block& from, const Block& to,
              const std::function<void(int64_t, int64_t, int64_t)>& visit);

Block whole(const Shape& global);

/// Bytes of a value that one rank has.
int64_t local_bytes(const Value& value, const Mesh& mesh);

/// Returns the block of a value that one rank has, for one micro-batch.
Block block_of(const Layout& layout, const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro = 0);

/// True for the first of the ranks that have the same block; it writes checkpoints. Partial axes count as replicated.
bool first_holder(const Layout& layout, const Mesh& mesh, int64_t rank);

/// Copies `block` out of a whole tensor to `local`, both dense in host memory. `item`: bytes per element.
void slice(const void* global, const Shape& global_shape, const Block& block, int64_t item, void* local);
/// Copies `local`, the contents of `block`, into a whole tensor.
void place(void* global, const Shape& global_shape, const Block& block, int64_t item, const void* local);

}  // namespace orrery
