#include "draw/trade_off.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <regex>

#include "svg_labels.h"

using namespace orrery;

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

size_t count(const std::string& text, const std::string& words) {
    size_t found = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
    return found;
}

}  // namespace

TEST_CASE("trade-off: the front is what nothing that fits beats in both") {
    TradeOff all;
    all.memory_limit = 80;
    const auto way = [&](double step_s, double bytes) { all.ways.push_back({step_s, bytes, 0, ""}); };
    way(1.0, 90);  // fastest, but does not fit
    way(2.0, 80);  // just fits
    way(2.0, 70);  // as fast, smaller
    way(3.0, 75);  // beaten
    way(3.0, 40);
    way(4.0, 40);  // beaten
    way(9.0, 10);
    CHECK(pareto_front(all) == std::vector<bool>{false, false, true, false, true, false, true});
    all.memory_limit = 0;
    CHECK(pareto_front(all) == std::vector<bool>{true, false, true, false, true, false, true});
    CHECK(pareto_front({}).empty());
    all.ways[2].memory_limit = 60;  // of a rank with another accelerator
    CHECK(pareto_front(all) == std::vector<bool>{true, true, false, false, true, false, true});
}

TEST_CASE("trade-off: a mark for each way, the limit, and numbers that do not cover each other") {
    TradeOff all{"llama on a cluster", {"40 compiled"}, {}, 80 * gib};
    for (int i = 0; i < 10; ++i) all.ways.push_back({2 + 0.002 * i, (60 - 0.1 * i) * gib, i + 1, "tp=8 <x>"});
    for (int i = 0; i < 20; ++i) all.ways.push_back({2.2 + 0.05 * i, (30 + 4 * i) * gib, 0, "other"});
    all.ways.push_back({7, 20 * gib, 0, "slow"});
    const std::string svg = draw_svg(all);
    CHECK(svg.find("<svg xmlns=") == 0);
    CHECK(svg.find(">an accelerator has<") != std::string::npos);
    CHECK(svg.find(">80.0 GiB<") != std::string::npos);
    CHECK(svg.find("1 more choice is not shown: over twice the time or memory") != std::string::npos);
    CHECK(svg.find("tp=8 &lt;x&gt;") != std::string::npos);
    CHECK(count(svg, "class=\"lead\"") == 10);
    // Rings in the picture and in the list below, and one in the key.
    CHECK(count(svg, "class=\"badge\"") == 21);
    const std::regex ring("class=\"badge\" cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
    std::vector<std::pair<double, double>> rings;
    for (std::sregex_iterator at(svg.begin(), svg.end(), ring), end; at != end; ++at)
        rings.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
    for (size_t i = 0; i < rings.size(); ++i)
        for (size_t k = 0; k < i; ++k)
            CHECK(std::hypot(rings[i].first - rings[k].first, rings[i].second - rings[k].second) > 18);
    CHECK(draw_svg(all) == svg);
    test::check_labels(svg);
    // What is fast and does not fit is inside the axes, too.
    all.ways.push_back({0.5, 120 * gib, 0, "too large"});
    const std::string wider = draw_svg(all);
    const std::regex unfit("class=\"unfit\" cx=\"([0-9.]+)\"");
    int seen = 0;
    for (std::sregex_iterator at(wider.begin(), wider.end(), unfit), end; at != end; ++at, ++seen)
        CHECK(std::stod((*at)[1]) > 96 - (seen == 0 ? 96 : 0));
    CHECK(seen > 1);
}

TEST_CASE("trade-off: axes have ticks for steps of milliseconds and memory of megabytes") {
    TradeOff all{"gpt on 2 ranks", {}, {}, 300 << 20};
    all.memory_name = "mean memory of a rank";
    all.limit_name = "a rank's share of this host is";
    for (int i = 0; i < 6; ++i)
        all.ways.push_back(
            {0.0123 + 0.0004 * i, (200.0 - 10 * i) * (1 << 20), i + 1, "dp=2 tp=1, a way with many words"});
    const std::string svg = draw_svg(all);
    test::check_labels(svg);
    for (const char* label : {">12.5<", ">14.0<", "time of a step, in ms", ">50 MiB<", ">300 MiB<", ">12.3 ms<",
                              ">a rank's share of this host is<", ">mean memory of a rank<"})
        CHECK_THAT(svg, Catch::Matchers::Contains(label));
    CHECK_THAT(svg, !Catch::Matchers::Contains("accelerator"));
    all.memory_limit = 12 * gib;  // far above: it would flatten all ways
    const std::string far = draw_svg(all);
    test::check_labels(far);
    CHECK_THAT(far, Catch::Matchers::Contains("a rank's share of this host is 12.0 GiB, far above<") &&
                        Catch::Matchers::Contains(">200 MiB<") && !Catch::Matchers::Contains("class=\"limit\""));
    for (auto& way : all.ways) way.step_s = 7;  // all the same
    test::check_labels(draw_svg(all));
}
