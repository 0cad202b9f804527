#include "cli/bench/bench_rows.h"

#include <catch2/catch.hpp>

#include "config/load.h"
#include "folders.h"
#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("sizes are bytes, or numbers with K, M or G", "[bench]") {
    CHECK(parse_size("4") == 4);
    CHECK(parse_size("1K") == 1024);
    CHECK(parse_size("256M") == 256 << 20);
    CHECK(parse_size("2g") == int64_t{2} << 30);
    CHECK(parse_size("0") == 0);
    for (const char* text : {"", "K", "1T", "-1K", "1.5M", "9999999999G", "12 "})
        CHECK_THROWS_WITH(parse_size(text), Contains("is not a size"));
}

TEST_CASE("what cannot be timed is refused before anything starts", "[bench]") {
    Config config = load_config("");
    CollectiveBench bench;
    bench.collective = "all_reduec";
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}),
                      Contains("all_reduec") && Contains("reduce_scatter"));
    bench = {};
    bench.transport = "threads";
    Config with_plugins = parse_config("", "", std::vector{"plugins.path=['" + in_build("plugins") + "']"});
    CHECK_THROWS_WITH(bench_collectives(bench, with_plugins, {"orrery"}), Contains("runs ranks as threads"));
    bench = {};
    bench.begin = 2 * bench.end;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("-b is greater than -e"));
    bench = {};
    bench.factor = 1;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("expected a factor"));
    bench = {};
    bench.ranks = 0;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("--ranks 0: expected 1 to"));
    bench = {};
    bench.begin = bench.end = 3;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("less than 4 bytes"));
    bench = {};
    bench.signed_bytes = true;
    bench.dtype = DType::u8;
    bench.op = ReduceOp::max;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("sent as unsigned bytes"));
    bench = {};
    bench.node_rank = 1;
    CHECK_THROWS_WITH(bench_collectives(bench, config, {"orrery"}), Contains("--node-rank 1 of --nodes 1"));
}

TEST_CASE("only blocks round a size to the ranks; 0 comes before the first of the others", "[bench]") {
    CollectiveBench bench;
    bench.begin = 0;
    bench.end = 400;
    bench.factor = 3;
    using Sizes = std::vector<int64_t>;
    for (const char* name : {"all_reduce", "broadcast", "send_receive"})
        CHECK(bench_sizes(bench, bench_form(name), 8) == Sizes{0, 4, 12, 36, 108, 324});
    for (const char* name : {"all_gather", "reduce_scatter", "all_to_all"})
        CHECK(bench_sizes(bench, bench_form(name), 8) == Sizes{0, 32, 96, 288});
    bench.begin = 1;
    bench.dtype = DType::u8;
    CHECK(bench_sizes(bench, bench_form("all_reduce"), 8) == Sizes{1, 3, 9, 27, 81, 243});
    bench.begin = bench.end = 0;
    CHECK(bench_sizes(bench, bench_form("all_gather"), 8) == Sizes{0});
}

TEST_CASE("the ranks' times become one as nccl-tests' -a says", "[bench]") {
    const std::vector<double> us{3, 1, 8};
    const auto time = [&](int average) { return bench_time(static_cast<CollectiveBench::Average>(average), us); };
    CHECK(time(0) == 3);
    CHECK(time(1) == 4);
    CHECK(time(2) == 1);
    CHECK(time(3) == 8);
}
