#include "cli/bench_collectives.h"

#include <catch2/catch.hpp>

#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("sizes are bytes, or numbers with K, M or G", "[bench]") {
    CHECK(parse_size("4") == 4);
    CHECK(parse_size("1K") == 1024);
    CHECK(parse_size("256M") == 256 << 20);
    CHECK(parse_size("2g") == int64_t{2} << 30);
    for (const char* text : {"", "K", "1T", "-1K", "0", "1.5M", "9999999999G", "12 "})
        CHECK_THROWS_WITH(parse_size(text), Contains("is no size"));
}

TEST_CASE("what cannot be timed is refused before anything starts", "[bench]") {
    Config config;
    CollectiveBench bench;
    bench.collective = "all_reduec";
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}),
                      Contains("all_reduec") && Contains("reduce_scatter"));
    bench = {};
    bench.transport = "threads";
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("no rank processes"));
    bench = {};
    bench.begin = 2 * bench.end;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("-b is greater than -e"));
    bench = {};
    bench.factor = 1;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("does not grow"));
    bench = {};
    bench.ranks = 0;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("0 ranks"));
}
