#include <catch2/catch.hpp>

#include "plan/timeline.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

TEST_CASE("timeline: GPipe and 1F1B have the bubbles and peaks of the closed forms", "[slow]") {
    for (int64_t p = 2; p <= 16; ++p)
        for (int64_t m = p; m <= 8 * p; ++m) {
            CAPTURE(p, m);
            const Timeline gpipe = timeline(hand_gpipe(p, m)), one = timeline(hand_1f1b(p, m));
            // F = 1 and B with its W = 2: the pipeline fills and empties once.
            REQUIRE(gpipe.makespan == 3 * (m + p - 1));
            REQUIRE(one.makespan == 3 * (m + p - 1));
            for (int64_t s = 0; s < p; ++s) {
                const auto r = static_cast<size_t>(s);
                REQUIRE(gpipe.idle(r) * (m + p - 1) == (p - 1) * gpipe.makespan);
                REQUIRE(one.idle(r) * (m + p - 1) == (p - 1) * one.makespan);
                REQUIRE(gpipe.peak[r] == m);
                REQUIRE(one.peak[r] == std::min(p - s, m));
            }
        }
}

TEST_CASE("timeline: every fragment starts as early as it can") {
    // B takes two units, its W included:
    // rank 0  F0 F1 .  .  B0 B0 .  B1 B1
    // rank 1  .  F0 B0 B0 F1 B1 B1
    const Timeline t = timeline(hand_1f1b(2, 2));
    auto starts = [&](size_t r) {
        std::vector<int64_t> all;
        for (const Slot& slot : t.ranks[r]) all.push_back(slot.start);
        return all;
    };
    CHECK(starts(0) == std::vector<int64_t>{0, 1, 4, 7});
    CHECK(starts(1) == std::vector<int64_t>{1, 2, 4, 5});
    CHECK(t.makespan == 9);
    CHECK(t.busy == std::vector<int64_t>{6, 6});
    CHECK(t.bubble() == Approx(1.0 / 3));
}

TEST_CASE("timeline: chunks, weight fragments and a V of stages") {
    Schedule v{
        "v", {RankSchedule::parse("F0 F0.1 B0.1 B0 W0.1 W0"), RankSchedule::parse("F0 F0.1 B0.1 B0 W0.1 W0")}, {}};
    v.stages = {{0, 3}, {1, 2}};
    const Timeline t = timeline(v);
    // F: stages 0 1 2 3 at 0 1 2 3, B: stages 3 2 1 0 at 4 5 6 7, then the two W.
    CHECK(t.ranks[0][1].stage == 3);
    CHECK(t.ranks[0][1].start == 3);
    CHECK(t.ranks[1][2].start == 5);
    CHECK(t.ranks[0][3].start == 7);
    CHECK(t.makespan == 10);
    CHECK(t.peak == std::vector<int64_t>{2, 2});
}

TEST_CASE("timeline: other times than the unit's") {
    const Schedule schedule = hand_gpipe(2, 1);
    const Timeline t = timeline(schedule, [](int rank, const Fragment& f) {
        return rank == 1 ? 10 : f.kind == Fragment::Kind::forward ? 3 : 4;
    });
    CHECK(t.makespan == 3 + 10 + 10 + 4);
    CHECK(t.idle(0) == 20);
    CHECK(timeline(Schedule{"none", {}, {}}).bubble() == 0);
}

TEST_CASE("timeline: an order that waits for ever is named") {
    const Schedule crossed{"crossed", {RankSchedule::parse("F0 B0 F1 B1"), RankSchedule::parse("F1 F0 B0 B1")}, {}};
    CHECK_THROWS_WITH(
        timeline(crossed),
        Contains("its ranks wait for each other\n") &&
            Contains("pipeline rank 0, position 1: B0 of stage 0 waits for B0 of stage 1 on pipeline rank 1") &&
            Contains("pipeline rank 1, position 0: F1 of stage 1 waits for F1 of stage 0 on pipeline rank 0"));
    const Schedule lacking{"lacking", {RankSchedule::parse("F0 B0"), RankSchedule::parse("F0")}, {}};
    CHECK_THROWS_WITH(timeline(lacking), Contains("waits for B0 of stage 1, which no rank runs"));
}
