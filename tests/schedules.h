#pragma once
#include <algorithm>

#include "orrery/schedule.h"

namespace orrery::test {

/// Schedules written by hand, for tests of what reads schedules; the shipped ones are in scripts/orrery/schedules.

/// All forward, then all backward.
inline Schedule hand_gpipe(int64_t stages, int64_t micro) {
    RankSchedule rank;
    for (int64_t m = 0; m < micro; ++m) rank.order.push_back({Fragment::Kind::forward, m, 0});
    for (int64_t m = 0; m < micro; ++m) rank.order.push_back({Fragment::Kind::backward, m, 0});
    return {"gpipe", std::vector<RankSchedule>(static_cast<size_t>(stages), rank), {}};
}

/// p - 1 - s forward to warm up, then one forward and one backward in turn, then the rest backward.
inline Schedule hand_1f1b(int64_t stages, int64_t micro) {
    Schedule schedule{"1f1b", {}, {}};
    for (int64_t s = 0; s < stages; ++s) {
        RankSchedule& rank = schedule.ranks.emplace_back();
        const int64_t warm = std::min(stages - 1 - s, micro);
        for (int64_t m = 0; m < warm; ++m) rank.order.push_back({Fragment::Kind::forward, m, 0});
        for (int64_t m = warm; m < micro; ++m) {
            rank.order.push_back({Fragment::Kind::forward, m, 0});
            rank.order.push_back({Fragment::Kind::backward, m - warm, 0});
        }
        for (int64_t m = micro - warm; m < micro; ++m) rank.order.push_back({Fragment::Kind::backward, m, 0});
    }
    return schedule;
}

}  // namespace orrery::test
