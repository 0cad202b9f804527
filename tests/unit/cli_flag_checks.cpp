// What the command line refuses before a command begins: numbers, names of files, slow ranks.
#include <catch2/catch.hpp>

#include "cli/flags.h"
#include "cli/simulate/forecast.h"
#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// "" where it is let through.
std::string said(const FlagCheck& check, const std::string& text) { return check.problem_of(text); }

}  // namespace

TEST_CASE("numbers of flags are within bounds, finite and nothing else") {
    for (const char* good : {"0", "10", "0.5", "1e1", "1e-3"}) CHECK(said(number(0, 10), good).empty());
    for (const char* bad : {"", "nan", "inf", "-inf", "-1", "-1e-9", "10.1", "1e400", "1x", " 1", "x"}) {
        INFO(bad);
        CHECK_THAT(said(number(0, 10), bad), Contains("expected a number from 0 to 10"));
    }
    CHECK_THAT(said(number(1e-6, 1e6), "0"), Contains("0: expected a number from 1e-06 to 1000000"));
    for (const char* good : {"1", "64"}) CHECK(said(whole_number(1, 64), good).empty());
    for (const char* bad : {"", "0", "65", "1.5", "99999999999999999999", "nan", "2 "}) {
        INFO(bad);
        CHECK_THAT(said(whole_number(1, 64), bad), Contains("expected a whole number from 1 to 64"));
    }
    CHECK(said(file_name(), "x").empty());
    CHECK(said(file_name(), "") == "'': expected the name of a file");
}

TEST_CASE("a slow rank is a rank and a number, once") {
    const auto slow = slow_ranks({"3:1.5", "0:1"}, 4);
    CHECK(slow == std::map<int64_t, double>{{3, 1.5}, {0, 1}});
    for (const char* bad :
         {"",     ":",   ":2",   "1:",    "1",     "1:x",   "x:2",    "1:2x",    "1x:2",  " 1:2",
          "1: 2", "4:2", "-1:2", "1:0.5", "1:nan", "1:inf", "1:-inf", "1:1e300", "1:2:3", "99999999999999999999:2"}) {
        INFO(bad);
        CHECK_THROWS_WITH(slow_ranks({bad}, 4), Contains("RANK:TIMES") && Contains("below 4"));
    }
    CHECK_THROWS_WITH(slow_ranks({"3:1.5", "1:2", "3:2"}, 4), Contains("--slow 3:2: duplicate rank 3"));
}
