#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

/// From the orders of its ranks as text.
inline Schedule by_hand(std::string name, const std::vector<const char*>& orders,
                        std::vector<std::vector<int>> stages = {}) {
    Schedule schedule{std::move(name), {}, std::move(stages), {}};
    for (const char* order : orders) schedule.ranks.push_back(RankSchedule::parse(order));
    return schedule;
}

/// Two ranks of two stages each, four micro-batches.
inline Schedule hand_interleaved() {
    return by_hand("interleaved", {"F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3",
                                   "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"});
}

/// The same with weight gradients apart; the first rank has the first and the last stage.
inline Schedule hand_vee() {
    return by_hand("vee",
                   {"F0 F1 F2 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 F3 B0 W0 F2.1 B2.1 W2.1 B1 W1 F3.1 B3.1 "
                    "W3.1 B2 W2 B3 W3",
                    "F0 F0.1 F1 F1.1 B0.1 W0.1 F2 B0 W0 F2.1 B1.1 W1.1 F3 B1 W1 F3.1 B2.1 W2.1 B2 B3.1 "
                    "B3 W2 W3.1 W3"},
                   {{0, 3}, {1, 2}});
}

}  // namespace orrery::test
