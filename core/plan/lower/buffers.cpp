#include "plan/lower/buffers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace orrery {
namespace {

constexpr size_t small_plan = 3000;

/// The free blocks of a growing arena, by offset and by size. Adjacent blocks are merged.
class FreeBlocks {
public:
    int64_t take(int64_t bytes) {
        auto best = by_size_.lower_bound({bytes, -1});
        if (best == by_size_.end()) return take_at_end(bytes);
        const auto [size, offset] = *best;
        remove(offset, size);
        if (size > bytes) add(offset + bytes, size - bytes);
        return offset;
    }

    void give(int64_t offset, int64_t bytes) {
        auto next = by_place_.lower_bound(offset);
        if (next != by_place_.end() && next->first == offset + bytes) {
            bytes += next->second;
            remove(next->first, next->second);
        }
        auto after = by_place_.lower_bound(offset);
        if (after != by_place_.begin()) {
            auto before = std::prev(after);
            if (before->first + before->second == offset) {
                offset = before->first;
                bytes += before->second;
                remove(before->first, before->second);
            }
        }
        add(offset, bytes);
    }

    int64_t end() const { return end_; }

private:
    /// Allocates bytes at the end of the arena. A free block there is used first; the arena grows by the rest.
    int64_t take_at_end(int64_t bytes) {
        int64_t offset = end_;
        if (!by_place_.empty()) {
            const auto [last, size] = *by_place_.rbegin();
            if (last + size == end_) {
                offset = last;
                remove(last, size);
            }
        }
        end_ = offset + bytes;
        return offset;
    }
    void add(int64_t offset, int64_t bytes) {
        by_place_.emplace(offset, bytes);
        by_size_.emplace(bytes, offset);
    }
    void remove(int64_t offset, int64_t bytes) {
        by_place_.erase(offset);
        by_size_.erase({bytes, offset});
    }

    std::map<int64_t, int64_t> by_place_;
    std::set<std::pair<int64_t, int64_t>> by_size_;
    int64_t end_ = 0;
};

/// Places buffers as a heap would, in order of time; of those that are allocated at once, the largest first.
Placed best_fit(const std::vector<Lifetime>& lifetimes, bool backwards) {
    std::vector<size_t> births(lifetimes.size());
    std::iota(births.begin(), births.end(), size_t{0});
    auto birth = [&](size_t i) { return backwards ? -lifetimes[i].last : lifetimes[i].first; };
    auto death = [&](size_t i) { return backwards ? -lifetimes[i].first : lifetimes[i].last; };
    std::vector<size_t> deaths = births;
    std::stable_sort(births.begin(), births.end(), [&](size_t a, size_t b) {
        if (birth(a) != birth(b)) return birth(a) < birth(b);
        return lifetimes[a].bytes > lifetimes[b].bytes;
    });
    std::stable_sort(deaths.begin(), deaths.end(), [&](size_t a, size_t b) { return death(a) < death(b); });

    Placed placed;
    placed.offsets.resize(lifetimes.size());
    FreeBlocks blocks;
    size_t next_death = 0;
    for (size_t i : births) {
        for (; next_death < deaths.size() && death(deaths[next_death]) < birth(i); ++next_death) {
            const size_t dead = deaths[next_death];
            blocks.give(placed.offsets[dead], aligned(lifetimes[dead].bytes));
        }
        placed.offsets[i] = blocks.take(aligned(lifetimes[i].bytes));
    }
    placed.bytes = blocks.end();
    return placed;
}

/// Places the largest buffer first, each in the smallest sufficient gap between those alive at the same time.
Placed greedy_by_size(const std::vector<Lifetime>& lifetimes) {
    std::vector<size_t> order(lifetimes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
    Placed placed;
    placed.offsets.resize(lifetimes.size());
    std::vector<size_t> by_offset;
    for (size_t i : order) {
        const Lifetime& mine = lifetimes[i];
        const int64_t bytes = aligned(mine.bytes);
        int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
        for (size_t j : by_offset) {
            const Lifetime& other = lifetimes[j];
            if (other.last < mine.first || mine.last < other.first) continue;
            const int64_t gap = placed.offsets[j] - end;
            if (gap >= bytes && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
            end = std::max(end, placed.offsets[j] + aligned(other.bytes));
        }
        placed.offsets[i] = best >= 0 ? best : end;
        placed.bytes = std::max(placed.bytes, placed.offsets[i] + bytes);
        auto at = std::upper_bound(by_offset.begin(), by_offset.end(), placed.offsets[i],
                                   [&](int64_t offset, size_t j) { return offset < placed.offsets[j]; });
        by_offset.insert(at, i);
    }
    return placed;
}

int64_t most_alive(const std::vector<Lifetime>& lifetimes) {
    std::vector<std::pair<int, int64_t>> changes;
    changes.reserve(2 * lifetimes.size());
    for (const Lifetime& l : lifetimes) {
        changes.emplace_back(l.first, aligned(l.bytes));
        changes.emplace_back(l.last + 1, -aligned(l.bytes));
    }
    std::sort(changes.begin(), changes.end());
    int64_t alive = 0, most = 0;
    for (const auto& [when, bytes] : changes) most = std::max(most, alive += bytes);
    return most;
}

}  // namespace

std::vector<Lifetime> pool_lifetimes(const RankClass& c) {
    std::vector<Lifetime> lives;
    for (const Frames& f : c.frames) {
        lives.resize(std::max<size_t>(lives.size(), f.pool + 1), {0, INT32_MAX, -1});
        lives[f.pool].bytes = f.stride * f.slots;
    }
    for (const Buffer& b : c.buffers) {
        if (b.frames == none) continue;
        Lifetime& life = lives[c.frames[b.frames].pool];
        life.first = std::min(life.first, b.first);
        life.last = std::max(life.last, b.last);
    }
    return lives;
}

Placed place_buffers(const std::vector<Lifetime>& lifetimes) {
    Placed best = best_fit(lifetimes, false);
    const int64_t floor = most_alive(lifetimes);
    auto keep = [&](Placed other) {
        if (other.bytes < best.bytes) best = std::move(other);
    };
    if (best.bytes > floor) keep(best_fit(lifetimes, true));
    if (best.bytes > floor && lifetimes.size() <= small_plan) keep(greedy_by_size(lifetimes));
    best.floor = floor;
    return best;
}

}  // namespace orrery
