#include "run/checkpoint/format/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace orrery {

// How replicated values are split among the ranks that hold them. Every rank computes the same split from layouts, mesh
// and stages.
// 1. Values that the same ranks hold form a group. Values that the program does not change form a group of their own.
// 2. A group's values are laid end to end, by name, and cut into one part of equal bytes per rank, or into fewer parts
//    if a part would be smaller than least_bytes. Fewer parts are spread evenly over the ranks (part_at).
// 3. Each cut moves to the nearest row boundary. A row is the longest run of inner dims below 1/64 of a part
//    (element_at).
// 4. The elements of a value between two cuts are stored as blocks (cut).
//
//      values       |    embed    | norm |      w1      |     w2     |
//      parts        |   rank 0    |    rank 1   |   rank 2    | rank 3 |

namespace {

/// The coordinates on an axis at which ranks hold the same block, ascending.
struct Alike {
    int64_t count = 0;                     ///< number of coordinates; 0: each coordinate has another block
    std::span<const int64_t> stages = {};  ///< coordinates of pipeline stages; empty: all of the axis

    int64_t at(int64_t place) const { return stages.empty() ? place : stages[static_cast<size_t>(place)]; }
};

Alike alike_along(const StateValue& value, const Mesh& mesh, AxisId axis, AxisId stage_axis) {
    const Axis& own = mesh.axis(axis);
    if (own.size == 1 || own.sequential || value.layout.at(axis).kind == Placement::Kind::split) return {};
    if (axis != stage_axis || value.stages.empty()) return {own.size};
    return {static_cast<int64_t>(value.stages.size()), value.stages};
}

/// The ranks that hold the same block: their number, this rank's place among them, and the lowest of them.
struct Holders {
    int64_t count = 1, place = 0, first = 0;
    std::string axes;  ///< mesh axes over which the block is replicated: "dp+tp"
};

Holders place_among(const StateValue& value, const Mesh& mesh, int64_t rank, AxisId stage_axis) {
    std::vector<int64_t> at = mesh.coordinates(rank);
    Holders holders;
    for (AxisId axis = 0; axis < static_cast<AxisId>(mesh.axes().size()); ++axis) {
        const Alike alike = alike_along(value, mesh, axis, stage_axis);
        if (alike.count == 0) continue;
        const std::string& name = mesh.axis(axis).name;
        int64_t& coordinate = at[static_cast<size_t>(axis)];
        int64_t place = coordinate;
        if (!alike.stages.empty()) {
            const auto stage = std::find(alike.stages.begin(), alike.stages.end(), coordinate);
            if (stage == alike.stages.end())
                throw Error(fmt::format("rank {} has the value {}, which belongs to stages {} of axis {}", rank,
                                        value.name, fmt::join(alike.stages, " "), name));
            place = stage - alike.stages.begin();
        }
        holders.count *= alike.count;
        holders.place = holders.place * alike.count + place;
        coordinate = alike.at(0);
        holders.axes += (holders.axes.empty() ? "" : "+") + name;
    }
    holders.first = mesh.rank_of(at);
    return holders;
}

/// A group of values that are split among ranks as one sequence of bytes.
struct Line {
    std::vector<size_t> values;
    int64_t bytes = 0;
};

int64_t part_of(int64_t whole, int64_t part, int64_t parts) {
    __extension__ typedef __int128 Wide;
    return static_cast<int64_t>(static_cast<Wide>(whole) * part / parts);
}

/// The part that the holder at `place` writes; -1: none. Part p is written by the holder at p * holders / parts.
int64_t part_at(int64_t place, int64_t parts, int64_t holders) {
    const int64_t part = part_of(place + 1, parts, holders) -
                         (part_of(place + 1, parts, holders) * holders == (place + 1) * parts ? 1 : 0);
    return part >= 0 && part < parts && part_of(part, holders, parts) == place ? part : -1;
}

/// Moves a cut at `byte` of a local block to the nearest row boundary, and returns the element there. A row is the
/// longest run of inner dims below 1/64 of a part. `item`: bytes of an element.
int64_t element_at(const Block& local, int64_t item, int64_t byte, int64_t part_bytes) {
    const int64_t count = local.count();
    if (byte <= 0) return 0;
    if (byte >= count * item) return count;
    int64_t row = 1;
    for (size_t dim = local.shape.size(); dim-- > 1;) {
        if (row * local.shape[dim] * item > std::max(item, part_bytes / 64)) break;
        row *= local.shape[dim];
    }
    return std::min(count, (byte / item + row / 2) / row * row);
}

/// Appends the elements [begin, end) of a row-major block to `out` as blocks: at most two per dim, plus one.
void cut(const Block& local, size_t dim, Block at, int64_t begin, int64_t end, std::vector<Block>& out) {
    if (begin >= end) return;
    if (dim == local.shape.size()) return out.push_back(at);
    int64_t row = 1;
    for (size_t inner = dim + 1; inner < local.shape.size(); ++inner) row *= local.shape[inner];
    const auto inside = [&](int64_t first, int64_t from, int64_t to) {
        Block one = at;
        one.offset[dim] = local.offset[dim] + first;
        one.shape[dim] = 1;
        cut(local, dim + 1, one, from - first * row, to - first * row, out);
    };
    if (begin % row != 0) {
        const int64_t first = begin / row, stop = std::min(end, (first + 1) * row);
        inside(first, begin, stop);
        begin = stop;
    }
    if (end / row > begin / row && begin < end) {
        Block rows = at;
        rows.offset[dim] = local.offset[dim] + begin / row;
        rows.shape[dim] = end / row - begin / row;
        out.push_back(rows);
        begin = end / row * row;
    }
    if (begin < end) inside(begin / row, begin, end);
}

}  // namespace

Block box_of(const StateValue& value, const Mesh& mesh, int64_t rank) {
    if (!value.layout.partials().empty())
        throw Error("cannot save " + value.name + ": it holds partial sums (" + value.layout.text(mesh) + ")");
    Block box{value.layout.offset(value.global.shape, mesh, rank), value.layout.local_shape(value.global.shape, mesh)};
    if (value.local.shape != box.shape || value.local.dtype != value.global.dtype)
        throw Error("cannot save " + value.name + ": this rank holds " +
                    TensorType{value.local.dtype, value.local.shape}.text() + ", its layout says " +
                    TensorType{value.global.dtype, box.shape}.text());
    return box;
}

std::vector<int64_t> holders_of(const StateValue& value, const Mesh& mesh, int64_t rank, AxisId stage_axis) {
    std::vector<std::vector<int64_t>> all = {mesh.coordinates(rank)};
    for (AxisId axis = 0; axis < static_cast<AxisId>(mesh.axes().size()); ++axis) {
        const Alike alike = alike_along(value, mesh, axis, stage_axis);
        if (alike.count == 0) continue;
        std::vector<std::vector<int64_t>> more;
        for (const std::vector<int64_t>& at : all)
            for (int64_t place = 0; place < alike.count; ++place)
                more.push_back(at), more.back()[static_cast<size_t>(axis)] = alike.at(place);
        all = std::move(more);
    }
    std::vector<int64_t> ranks;
    for (const std::vector<int64_t>& at : all) ranks.push_back(mesh.rank_of(at));
    return ranks;
}

std::vector<Share> shares_of(std::span<const StateValue> state, const Mesh& mesh, int64_t rank, AxisId stage_axis,
                             int64_t least_bytes) {
    std::vector<Share> shares(state.size());
    std::map<std::string, std::pair<Holders, Line>> lines;
    for (size_t i = 0; i < state.size(); ++i) {
        shares[i].local = box_of(state[i], mesh, rank);
        const Holders holders = place_among(state[i], mesh, rank, stage_axis);
        const std::string stages =
            state[i].stages.empty() ? "" : fmt::format(", stages {}", fmt::join(state[i].stages, " "));
        shares[i].holders = fmt::format("{}{}, rank {}", holders.axes, stages, holders.first);
        shares[i].count = holders.count;
        shares[i].first = holders.first == rank;
        // Values that the program does not change form their own groups, because later saves only link to them.
        const std::string kind = shares[i].holders + (state[i].fixed ? ", fixed" : "");
        auto& [who, line] = lines.try_emplace(kind, holders, Line{}).first->second;
        line.values.push_back(i);
        line.bytes += state[i].local.bytes();
    }
    for (auto& [name, entry] : lines) {
        auto& [who, line] = entry;
        std::sort(line.values.begin(), line.values.end(),
                  [&](size_t a, size_t b) { return state[a].name < state[b].name; });
        const int64_t parts = std::clamp<int64_t>(line.bytes / std::max<int64_t>(1, least_bytes), 1, who.count);
        const int64_t part = part_at(who.place, parts, who.count);
        if (part < 0) continue;
        const int64_t begin = part_of(line.bytes, part, parts), end = part_of(line.bytes, part + 1, parts);
        int64_t start = 0;
        for (const size_t i : line.values) {
            const int64_t item = size_of(state[i].global.dtype), bytes = state[i].local.bytes();
            const int64_t from = element_at(shares[i].local, item, begin - start, line.bytes / parts);
            const int64_t to = element_at(shares[i].local, item, end - start, line.bytes / parts);
            cut(shares[i].local, 0, shares[i].local, from, to, shares[i].blocks);
            start += bytes;
        }
    }
    return shares;
}

}  // namespace orrery
