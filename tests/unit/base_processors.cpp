#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/processors.h"

using namespace orrery;

TEST_CASE("work in parallel is done once each, and the first failure is told", "[processors]") {
    for (const size_t count : {0, 1, 2, 1000}) {
        std::vector<int> calls(count, 0);
        in_parallel(count, [&](size_t i) { ++calls[i]; });
        CHECK(calls == std::vector<int>(count, 1));
    }
    std::atomic<int> done{0};
    const auto fails = [&](size_t i) {
        if (i == 7 || i == 30) throw std::runtime_error("at " + std::to_string(i));
        ++done;
    };
    CHECK_THROWS_WITH(in_parallel(100, fails), "at 7");
    CHECK(done == 98);  // all others were done all the same
}

TEST_CASE("work in parallel takes no more threads than this one may use", "[processors]") {
    const std::vector<int> all = allowed_processors();
    REQUIRE_FALSE(all.empty());
    REQUIRE(run_on({all.front()}));
    std::set<int> order;
    in_parallel(10, [&](size_t i) { order.insert(static_cast<int>(i)); });  // no lock: one thread
    CHECK(order.size() == 10);
    CHECK(usable_processors() == 1);
    if (all.size() > 1) CHECK(is_bound());  // the process that started this one may run on all
    REQUIRE(run_on(all));
    CHECK(usable_processors() >= 1);
    CHECK(usable_processors() <= std::ssize(all));
}
