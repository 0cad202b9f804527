#include "run/checkpoint/format/tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {

namespace {

__extension__ typedef unsigned __int128 CornerPlace;

struct Corner {
    CornerPlace place;
    int64_t sign;
};

/// The dims of the tensor that at least one nonempty box does not span.
std::vector<size_t> cut_dims(const Shape& shape, std::span<const Block> boxes) {
    std::vector<size_t> cut;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
        const bool whole = std::all_of(boxes.begin(), boxes.end(), [&](const Block& box) {
            return box.count() == 0 || (box.offset[dim] == 0 && box.shape[dim] == shape[dim]);
        });
        if (!whole) cut.push_back(dim);
    }
    return cut;
}

void add_corners(std::vector<Corner>& corners, const Shape& shape, const std::vector<size_t>& cut, const Block& box,
                 int64_t sign) {
    for (size_t ends = 0; ends < size_t{1} << cut.size(); ++ends) {
        Corner corner{0, sign};
        for (size_t i = 0; i < cut.size(); ++i) {
            const size_t dim = cut[i];
            const bool end = (ends >> i & 1) != 0;
            const int64_t at = box.offset[dim] + (end ? box.shape[dim] : 0);
            corner.place = corner.place * (static_cast<CornerPlace>(shape[dim]) + 1) + static_cast<CornerPlace>(at);
            if (end) corner.sign = -corner.sign;
        }
        corners.push_back(corner);
    }
}

}  // namespace

// Each box adds +1 at its first corner and alternating signs at the others. Summed over all positions at or before an
// element, these give the number of boxes that hold the element. The whole tensor, as a box with opposite signs,
// subtracts the 1 that this number should be. So the boxes tile the tensor exactly if the sum at each position is 0.
//
//      in one dim, 10 elements:     position  0    4    6    10
//      boxes [0,4) and [4,10)                +1  -1+1        -1
//      less the whole [0,10)                 -1              +1     all sums are 0: exact
//      boxes [0,6) and [4,10)                +1   +1   -1    -1
//      less the whole [0,10)                 -1              +1     +1 at 4: elements 4 and 5 are covered twice
Tiling tiling_of(const Shape& shape, std::span<const Block> boxes) {
    constexpr size_t most = size_t{1} << 22;  // max corners, 32 bytes each; a forged manifest could ask for many more
    const std::vector<size_t> cut = cut_dims(shape, boxes);
    if (cut.size() > 22 || boxes.size() + 1 > most >> cut.size())
        throw Error(
            fmt::format("{} parts split along {} dims are too many to check for overlaps", boxes.size(), cut.size()));
    std::vector<Corner> corners;
    corners.reserve((boxes.size() + 1) << cut.size());
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (!empty) add_corners(corners, shape, cut, {Shape(shape.size(), 0), shape}, -1);
    for (const Block& box : boxes)
        if (box.count() > 0) add_corners(corners, shape, cut, box, 1);
    std::sort(corners.begin(), corners.end(), [](const Corner& a, const Corner& b) { return a.place < b.place; });
    Tiling tiling{true, static_cast<int64_t>(corners.size())};
    for (size_t i = 0; i < corners.size();) {
        int64_t sum = 0;
        const CornerPlace place = corners[i].place;
        for (; i < corners.size() && corners[i].place == place; ++i) sum += corners[i].sign;
        tiling.exact = tiling.exact && sum == 0;
    }
    return tiling;
}

}  // namespace orrery
