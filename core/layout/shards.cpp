#include "layout/shards.h"

#include <cassert>
#include <cstring>

namespace orrery {

Piece block_of(const Layout& layout, const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro) {
    return {layout.offset(global, mesh, rank, micro), layout.local_shape(global, mesh)};
}

bool first_holder(const Layout& layout, const Mesh& mesh, int64_t rank) {
    const std::vector<int64_t> place = mesh.coordinates(rank);
    for (size_t i = 0; i < place.size(); ++i)
        if (place[i] != 0 && layout.at(static_cast<AxisId>(i)).kind != Placement::Kind::split) return false;
    return true;
}

void for_each_run(const Shape& global, const Piece& block,
                  const std::function<void(int64_t global, int64_t local, int64_t count)>& run) {
    assert(global.size() == block.shape.size() && global.size() == block.offset.size());
    if (count_of(block.shape) == 0) return;
    size_t outer = global.size();  // dims [outer, rank) are one run
    int64_t count = 1;
    while (outer > 0) {
        --outer;
        count *= block.shape[outer];
        if (block.shape[outer] != global[outer]) break;
    }
    Shape strides(global.size(), 1);
    for (size_t d = global.size(); d-- > 1;) strides[d - 1] = strides[d] * global[d];
    int64_t start = 0;
    for (size_t d = 0; d < global.size(); ++d) start += block.offset[d] * strides[d];
    Shape at(outer, 0);
    for (int64_t local = 0;; local += count) {
        run(start, local, count);
        size_t d = outer;
        for (; d-- > 0;) {
            start += strides[d];
            if (++at[d] < block.shape[d]) break;
            start -= at[d] * strides[d];
            at[d] = 0;
        }
        if (d == static_cast<size_t>(-1)) return;
    }
}

void slice(const void* global, const Shape& global_shape, const Piece& block, int64_t item, void* local) {
    for_each_run(global_shape, block, [&](int64_t from, int64_t to, int64_t count) {
        std::memcpy(static_cast<char*>(local) + to * item, static_cast<const char*>(global) + from * item,
                    static_cast<size_t>(count * item));
    });
}

void place(void* global, const Shape& global_shape, const Piece& block, int64_t item, const void* local) {
    for_each_run(global_shape, block, [&](int64_t to, int64_t from, int64_t count) {
        std::memcpy(static_cast<char*>(global) + to * item, static_cast<const char*>(local) + from * item,
                    static_cast<size_t>(count * item));
    });
}

void assemble(void* global, const Shape& global_shape, const Layout& layout, const Mesh& mesh, int64_t item,
              std::span<const void* const> locals) {
    assert(layout.partials().empty() && static_cast<int64_t>(locals.size()) == mesh.ranks());
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        if (first_holder(layout, mesh, rank))
            place(global, global_shape, block_of(layout, global_shape, mesh, rank), item,
                  locals[static_cast<size_t>(rank)]);
}

}  // namespace orrery
