#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>

#include "draw/parts.h"
#include "plan/lower/buffers.h"
#include "plan/memory_parts.h"

namespace orrery::drawing {
namespace {

/// By part of memory: the live bytes at each instruction, and how many of these bytes are freed after it.
struct Alive {
    std::map<MemoryPart, std::vector<int64_t>> bytes, ending;

    MemoryCurve::Point at(size_t i, double time) const {
        const auto of = [&](MemoryPart part) { return bytes.at(part)[i]; };
        return {time, of(MemoryPart::gradients), of(MemoryPart::param_copies), of(MemoryPart::activations),
                of(MemoryPart::workspaces)};
    }
    MemoryCurve::Point behind(size_t i, double time) const {
        const auto of = [&](MemoryPart part) { return bytes.at(part)[i] - ending.at(part)[i]; };
        return {time, of(MemoryPart::gradients), of(MemoryPart::param_copies), of(MemoryPart::activations),
                of(MemoryPart::workspaces)};
    }
};

Alive alive_bytes(const Plan& plan, const RankClass& c) {
    Alive alive;
    for (const MemoryPart part :
         {MemoryPart::gradients, MemoryPart::param_copies, MemoryPart::activations, MemoryPart::workspaces})
        for (auto* parts : {&alive.bytes, &alive.ending}) (*parts)[part].assign(c.stream.size() + 1, 0);
    const std::vector<MemoryPart> parts = memory_parts(plan, c);
    for (size_t at = 0; at < c.buffers.size(); ++at) {
        const Buffer& b = c.buffers[at];
        if (b.arena != Arena::scratch || b.first < 0) continue;
        auto& bytes = alive.bytes[parts[at]];
        assert(static_cast<size_t>(b.last) < c.stream.size());
        const int64_t taken = aligned(b.bytes + slack(b));
        alive.ending[parts[at]][b.last] += taken;
        bytes[b.first] += taken;
        bytes[b.last + 1] -= taken;
    }
    for (auto& [part, bytes] : alive.bytes)
        for (size_t i = 1; i < bytes.size(); ++i) bytes[i] += bytes[i - 1];
    return alive;
}

/// Returns the indices of the longest non-decreasing subsequence.
std::vector<size_t> rising(const std::vector<int>& numbers) {
    std::vector<size_t> ends, before(numbers.size());  // `ends`: by subsequence length, index of the smallest end
    for (size_t i = 0; i < numbers.size(); ++i) {
        const auto at = std::upper_bound(ends.begin(), ends.end(), numbers[i],
                                         [&](int number, size_t end) { return number < numbers[end]; });
        before[i] = at == ends.begin() ? i : *(at - 1);
        if (at == ends.end())
            ends.push_back(i);
        else
            *at = i;
    }
    std::vector<size_t> places(ends.size());
    for (size_t k = ends.size(), i = ends.empty() ? 0 : ends.back(); k-- > 0; i = before[i]) places[k] = i;
    return places;
}

/// Returns for each instruction the index in `slots` of the fragment that it is drawn in: -1 before all fragments, the
/// number of slots after them. An instruction between two fragments that runs once a step, or outside its own fragment,
/// is drawn in the earlier one.
std::vector<int> slots_of(const RankClass& c, const std::vector<Slot>& slots) {
    std::map<std::tuple<Fragment::Kind, int64_t, int>, int> places;
    for (size_t s = 0; s < slots.size(); ++s) {
        const Fragment& f = slots[s].fragment;
        places[{f.kind, f.micro, f.chunk}] = s;
    }
    std::vector<int> of(c.stream.size(), -1), found_slots;
    std::vector<size_t> found_at;
    size_t last = 0;  // 1 + index of the last instruction that belongs to a fragment
    for (size_t i = 0; i < c.stream.size(); ++i) {
        const Fragment& f = c.stream[i].fragment;
        if (f.micro < 0) continue;
        auto found = places.find({f.kind, f.micro, f.chunk});
        if (found == places.end()) found = places.find({Fragment::Kind::backward, f.micro, f.chunk});
        last = i + 1;
        if (found == places.end()) continue;
        found_slots.push_back(found->second);
        found_at.push_back(i);
    }
    size_t next = 0;
    int slot = -1;
    for (size_t k : rising(found_slots)) {
        while (next < found_at[k]) of[next++] = slot;
        slot = found_slots[k];
    }
    while (next < of.size()) of[next++] = slot;
    for (size_t i = last; i < of.size(); ++i) of[i] = slots.size();
    return of;
}

}  // namespace

MemoryCurve memory_curve(const Plan& plan, const RankClass& c, const Timeline& timeline, double lead) {
    const std::vector<Slot>& slots = timeline.ranks.at(c.stage);
    MemoryCurve curve;
    curve.rank = c.stage;
    curve.ranks = range_text("rank", "ranks", c.ranks);
    curve.persistent = c.persistent_bytes;
    curve.peak = c.persistent_bytes;

    const std::vector<int> of = slots_of(c, slots);
    std::map<int, std::pair<int, int>> counts;  // by slot: number of its instructions, and how many are drawn already
    for (int slot : of) ++counts[slot].first;
    const Alive alive = alive_bytes(plan, c);
    const auto makespan = static_cast<double>(timeline.makespan);
    for (size_t i = 0; i < of.size(); ++i) {
        auto& [count, placed] = counts[of[i]];
        const double share = (placed++ + 0.5) / count;
        double from = -lead, to = lead > 0 || slots.empty() ? 0 : static_cast<double>(slots.front().start);
        if (of[i] == std::ssize(slots)) {
            from = lead > 0 || slots.empty() ? makespan : static_cast<double>(slots.back().end);
            to = makespan + lead;
        } else if (of[i] >= 0) {
            from = static_cast<double>(slots[of[i]].start);
            to = static_cast<double>(slots[of[i]].end);
        }
        curve.points.push_back(alive.at(i, from + share * (to - from)));
        if (const int64_t all = c.persistent_bytes + curve.points.back().all(); all > curve.peak) {
            curve.peak = all;
            curve.peak_time = curve.points.back().time;
        }
        if (placed == count) curve.points.push_back(alive.behind(i, to));
    }
    return curve;
}

}  // namespace orrery::drawing
