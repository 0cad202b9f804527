#include "run/capture_vote.h"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("ranks keep what they captured all or none") {
    const auto among = [](std::vector<std::string> others) {
        return [others](const std::string& mine) {
            std::vector<std::string> all = others;
            all.insert(all.begin(), mine);
            return all;
        };
    };
    CHECK(agree_on_capture(true, "", among({})) == "");
    CHECK(agree_on_capture(true, "", among({"captured", "captured"})) == "");
    CHECK(agree_on_capture(true, "", among({"captured", "not no memory"})) == "rank 2 could not: no memory");
    CHECK(agree_on_capture(false, "no memory", among({"captured"})) == "rank 0 could not: no memory");
    CHECK(agree_on_capture(true, "", among({"not a", "not b"})) == "rank 1 could not: a");
}
