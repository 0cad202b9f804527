#include <catch2/catch.hpp>

#include "orrery/schedule.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("a schedule prints and parses back") {
    const std::string text = "F0 F1 B0 W0 F0.1 B1.12 W31";
    const RankSchedule schedule = RankSchedule::parse(text);
    CHECK(schedule.text() == text);
    CHECK(schedule.order[4] == Fragment{Fragment::Kind::forward, 0, 1});
    CHECK(RankSchedule::parse("  F0\n\tB0 ").text() == "F0 B0");
    CHECK(RankSchedule::parse("").order.empty());
    CHECK(RankSchedule::parse("F0.0").text() == "F0");
}

TEST_CASE("what is no fragment is named") {
    for (const char* bad : {"X0", "F", "F-1", "F0.", "F0x", "F0.-1", "F99999999999999999999"})
        CHECK_THROWS_WITH(RankSchedule::parse(std::string("F0 ") + bad),
                          Contains("'" + std::string(bad) + "' is no fragment"));
}

TEST_CASE("the sequential schedule goes forward and back at once") {
    CHECK(sequential_schedule(3).ranks.at(0).text() == "F0 B0 F1 B1 F2 B2");
    CHECK(sequential_schedule(1).ranks.size() == 1);
}

TEST_CASE("stages of chunks interleave unless the schedule says otherwise") {
    Schedule schedule{"interleaved", std::vector<RankSchedule>(4), {}};
    CHECK(schedule.stage_of(2, 0) == 2);
    CHECK(schedule.stage_of(2, 1) == 6);
    schedule.stages = {{0, 7}, {1, 6}, {2, 5}, {3, 4}};  // a V
    CHECK(schedule.stage_of(0, 1) == 7);
    CHECK(schedule.stage_of(3, 1) == 4);
}
