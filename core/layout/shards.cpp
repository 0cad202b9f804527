#include "layout/shards.h"

#include <cassert>

#include <algorithm>
#include <cstring>

namespace orrery {

std::optional<Block> intersect(const Block& a, const Block& b) {
    assert(a.shape.size() == b.shape.size());
    Block both{a.offset, a.shape};
    for (size_t dim = 0; dim < a.shape.size(); ++dim) {
        const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
        const int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
        if (begin >= end) return std::nullopt;
        both.offset[dim] = begin;
        both.shape[dim] = end - begin;
    }
    return both;
}

void for_runs(const Block& part, const Block& from, const Block& to,
              const std::function<void(int64_t, int64_t, int64_t)>& visit) {
    const size_t rank = part.shape.size();
    if (part.count() == 0) return;
    // A contiguous run spans the trailing dims that the part has whole in both blocks, and the dim before them.
    size_t first = rank;
    int64_t run = 1;
    while (first > 0) {
        --first;
        run *= part.shape[first];
        if (part.shape[first] != from.shape[first] || part.shape[first] != to.shape[first]) break;
    }
    std::vector<int64_t> from_stride(rank, 1), to_stride(rank, 1);
    for (size_t dim = rank; dim-- > 1;) {
        from_stride[dim - 1] = from_stride[dim] * from.shape[dim];
        to_stride[dim - 1] = to_stride[dim] * to.shape[dim];
    }
    int64_t from_at = 0, to_at = 0;
    for (size_t dim = 0; dim < rank; ++dim) {
        from_at += (part.offset[dim] - from.offset[dim]) * from_stride[dim];
        to_at += (part.offset[dim] - to.offset[dim]) * to_stride[dim];
    }
    Shape index(first, 0);  // index of the run in the dims before it
    for (;;) {
        visit(from_at, to_at, run);
        size_t dim = first;
        for (; dim > 0; --dim) {
            const size_t d = dim - 1;
            from_at += from_stride[d];
            to_at += to_stride[d];
            if (++index[d] < part.shape[d]) break;
            from_at -= part.shape[d] * from_stride[d];
            to_at -= part.shape[d] * to_stride[d];
            index[d] = 0;
        }
        if (dim == 0) return;
    }
}

Block whole(const Shape& global) { return {Shape(global.size(), 0), global}; }

int64_t local_bytes(const Value& value, const Mesh& mesh) {
    return TensorType{value.type.dtype, value.layout.local_shape(value.type.shape, mesh)}.bytes();
}

Block block_of(const Layout& layout, const Shape& global, const Mesh& mesh, int64_t rank, int64_t micro) {
    return {layout.offset(global, mesh, rank, micro), layout.local_shape(global, mesh)};
}

bool first_holder(const Layout& layout, const Mesh& mesh, int64_t rank) {
    const std::vector<int64_t> place = mesh.coordinates(rank);
    for (size_t i = 0; i < place.size(); ++i)
        if (place[i] != 0 && layout.at(i).kind != Placement::Kind::split) return false;
    return true;
}

void slice(const void* global, const Shape& global_shape, const Block& block, int64_t item, void* local) {
    for_runs(block, whole(global_shape), block, [&](int64_t from, int64_t to, int64_t count) {
        std::memcpy(static_cast<char*>(local) + to * item, static_cast<const char*>(global) + from * item,
                    count * item);
    });
}

void place(void* global, const Shape& global_shape, const Block& block, int64_t item, const void* local) {
    for_runs(block, whole(global_shape), block, [&](int64_t to, int64_t from, int64_t count) {
        std::memcpy(static_cast<char*>(global) + to * item, static_cast<const char*>(local) + from * item,
                    count * item);
    });
}

}  // namespace orrery
