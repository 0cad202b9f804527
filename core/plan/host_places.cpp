#include "plan/host_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/access.h"
#include "plan/lower/buffers.h"

namespace orrery {
namespace {

constexpr int64_t gap = arena_alignment;  ///< values less than this many bytes apart are adjacent

template <class Wanted>
HostPlaces collect(const RankClass& ranks, Wanted wanted) {
    HostPlaces all;
    std::vector<std::pair<int64_t, int64_t>> parts;  // (begin, end) of each value
    for (const Operand& place : ranks.places) {
        if (!wanted(place)) continue;
        const int64_t begin = address(ranks, place);
        parts.emplace_back(begin, begin + place.type.bytes());
        all.places.push_back({place.value, begin});
    }
    if (parts.empty()) return all;
    std::sort(parts.begin(), parts.end());
    for (size_t i = 1; i < parts.size(); ++i)  // a copy of the block would overwrite a value in the gap
        if (parts[i].first - parts[i - 1].second >= gap)
            throw Error(
                fmt::format("plan: values that the host copies in one block are not contiguous: bytes {} to {} of the "
                            "arena belong to another value",
                            parts[i - 1].second, parts[i].first),
                Fault::failed);
    all.begin = parts.front().first;
    all.bytes = parts.back().second - all.begin;
    for (HostPlaces::Place& place : all.places) place.offset -= all.begin;
    return all;
}

}  // namespace

std::optional<int64_t> HostPlaces::offset(ValueId value) const {
    for (const Place& place : places)
        if (place.value == value) return place.offset;
    return std::nullopt;
}

HostPlaces host_inputs(const Program& program, const RankClass& ranks) {
    return collect(ranks, [&](const Operand& place) { return program.value(place.value).role == Role::input; });
}

HostPlaces host_results(const Program& program, const RankClass& ranks, int64_t most) {
    return collect(ranks, [&](const Operand& place) {
        return program.value(place.value).role == Role::temporary && place.type.bytes() <= most;
    });
}

}  // namespace orrery
