#pragma once
#include <span>

#include "layout/shards.h"

namespace orrery::test {

/// The whole array from the blocks of all ranks: locals[rank]. The layout must have no Partial and not split over the
/// sequential axis.
inline void assemble(void* global, const Shape& shape, const Layout& layout, const Mesh& mesh, int64_t item,
                     std::span<const void* const> locals) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        if (first_holder(layout, mesh, rank))
            place(global, shape, block_of(layout, shape, mesh, rank), item, locals[static_cast<size_t>(rank)]);
}

}  // namespace orrery::test
