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

/// Dims in which some box that holds anything is not the whole.
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

// The number of boxes over each element, less the 1 that it should be, is the sum of what boxes add at their corners,
// with alternating signs. It is zero everywhere when these cancel in each corner, and only then.
Tiling tiling_of(const Shape& shape, std::span<const Block> boxes) {
    constexpr size_t most = size_t{1} << 22;  // of 32 bytes: a forged manifest of some kB could ask for many more
    const std::vector<size_t> cut = cut_dims(shape, boxes);
    if (cut.size() > 22 || boxes.size() + 1 > most >> cut.size())
        throw Error(fmt::format("{} parts that cut {} dims are more than can be compared", boxes.size(), cut.size()));
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
