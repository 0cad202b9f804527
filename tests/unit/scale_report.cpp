#include <catch2/catch.hpp>

#include "base/json.h"
#include "cli/scale/scale.h"
#include "orrery/error.h"
#include "run/metrics/breakdown.h"
#include "svg_labels.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

ScaleReport three_sizes() {
    ScaleReport report;
    report.title = "my.lua: weak scaling over dp";
    report.runs = {{1, 4, 1000, 0.5, {{"compute", 0.95}, {"the rest", 0.05}}},
                   {2, 8, 1900, 0.48, {{"compute", 0.9}, {"communication dp", 0.06}, {"the rest", 0.04}}},
                   {4, 16, 3000, 0.4, {{"compute", 0.7}, {"communication dp", 0.2}, {"waiting", 0.1}}}};
    return report;
}

}  // namespace

TEST_CASE("sizes are whole and ascending", "[scale]") {
    CHECK(read_sizes("1,2,4,8") == std::vector<int64_t>{1, 2, 4, 8});
    CHECK(read_sizes("3") == std::vector<int64_t>{3});
    for (const char* bad : {"", "0", "2,1", "2,2", "1,x", "1,,2", "1 2", "-1", "4096"})
        CHECK_THROWS_WITH(read_sizes(bad), Contains("expected ascending numbers of ranks"));
}

TEST_CASE("where a run's time went is recorded by kind and axis, and read back as parts", "[scale]") {
    const auto seconds = parts_of({{"compute: matmul", 5, "compute"},
                                   {"compute: attention 2", 1, "compute"},
                                   {"communication: all_reduce dp", 2, "communication dp"},
                                   {"communication: reduce_scatter dp", 0.5, "communication dp"},
                                   {"communication: send pp", 0.25, "communication pp"},
                                   {"waiting: waiting", 0.25, "waiting"}},
                                  10);
    const auto parts = parts_of_run(Json({{"time_s", seconds}}).dump());
    CHECK(parts.at("compute") == Approx(0.6));
    CHECK(parts.at("communication dp") == Approx(0.25));
    CHECK(parts.at("communication pp") == Approx(0.025));
    CHECK(parts.at("waiting") == Approx(0.025));
    CHECK(parts.at("the rest") == Approx(0.1));
    CHECK_THROWS_WITH(parts_of_run("{}"), Contains("has no time_s"));
}

TEST_CASE("sizes are held against the smallest, and what grew is named", "[scale]") {
    ScaleReport report = three_sizes();
    CHECK(report.speedup(2) == 3);
    CHECK(report.efficiency(1) == Approx(0.95));
    CHECK(report.efficiency(2) == Approx(0.75));
    CHECK_FALSE(report.reaches_target());
    const std::string text = scale_text(report);
    CHECK_THAT(text, Contains("communication dp +20, waiting +10") && Contains("communication dp +6") &&
                         Contains("75.0%") && Contains("4 ranks reach 75.0 % of ideal scaling: the target is missed"));
    CHECK_THAT(text, !Contains("predicted"));
    report.predicted = {1000, std::nullopt, 3300};
    CHECK_THAT(scale_text(report), Contains("predicted") && Contains(" 10%"));
    report.target = 0.7;
    CHECK(report.reaches_target());
}

TEST_CASE("the picture says what the table says", "[scale]") {
    ScaleReport report = three_sizes();
    const std::string picture = scale_svg(report);
    CHECK_THAT(picture, Contains("<svg") && Contains("my.lua: weak scaling over dp") && Contains(">75 %<") &&
                            Contains("target, 80 %") && Contains("communication dp: 20 %") && Contains("</svg>"));
    CHECK_THAT(picture, !Contains("class=\"predicted\""));
    report.predicted = {1000, 2000, 3300};
    CHECK_THAT(scale_svg(report), Contains("class=\"predicted\""));
    report.runs.resize(1);  // a size alone has no curve, and is drawn
    report.predicted.clear();
    CHECK_THAT(scale_svg(report), Contains(">100 %<") && !Contains("nan") && !Contains("inf"));
}

TEST_CASE("sizes left out are named, also in the picture, and what speed-ups are over", "[scale]") {
    ScaleReport report = three_sizes();
    report.runs.erase(report.runs.begin());
    report.simulated = true;
    const std::string over = "speed-up and efficiency over 2 ranks", reason = "1 rank: out of memory: rank 0 needs ";
    CHECK_THAT(scale_text(report) + scale_svg(report), !Contains("over 2 ranks"));
    report.smallest_left_out = true;
    report.left_out = {
        reason + "90 GiB\n  split more",
        "8 ranks: heads are not a multiple of the ranks over which they are to be split, and of " + reason};
    CHECK_THAT(scale_text(report), Contains(over));
    const std::string svg = scale_svg(report);
    CHECK_THAT(svg, Contains(over) && Contains("not simulated: " + reason + "90 GiB<") &&
                        Contains("8 ranks: heads are not") && Contains("rank 0 needs"));
    test::check_labels(svg);
    report.target = 0.5;
    CHECK(report.reaches_target());
    report.largest_left_out = true;
    CHECK_FALSE(report.reaches_target());
}

TEST_CASE("labels of the picture do not overlap, for one size and for fifteen", "[scale]") {
    ScaleReport report = three_sizes();
    test::check_labels(scale_svg(report));
    report.target = 0.98;
    test::check_labels(scale_svg(report));
    report.runs.resize(1);
    test::check_labels(scale_svg(report));
    report.runs.clear();
    for (int64_t ranks = 1; ranks <= 16384; ranks *= 2) {
        ScaledRun& run = report.runs.emplace_back();
        run.ranks = ranks;
        run.throughput = 1'234'000.0 * static_cast<double>(ranks);
        for (const char* axis : {"pp", "dp", "tp", "cp", "ep", "rep", "pp+tp"})
            run.parts["communication " + std::string(axis)] = 0.1;
        run.parts["compute"] = 0.3;
    }
    const std::string svg = scale_svg(report);
    test::check_labels(svg);
    CHECK_THAT(svg, Contains(">1,000,000<"));
}
