// Drawings of schedules and of plans: golden texts, and what must hold for every drawing.
#include "draw/picture.h"

#include <catch2/catch.hpp>

#include <regex>
#include <sstream>

#include "golden.h"
#include "layout_models.h"
#include "plan/lower/buffers.h"
#include "plan/summary.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

Plan split_mlp() {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    m.program.name = "mlp";
    return compile(m.program, Mesh(std::vector<Axis>{{"dp", 2}, {"tp", 2}}).with_microbatches(2)).plan;
}

/// Every opening tag has its closing one, and nothing is fetched or run.
void check_svg(const std::string& svg) {
    std::vector<std::string> open;
    const std::regex tag(R"(<(/?)([A-Za-z]+)([^<>]*?)(/?)>)");
    for (std::sregex_iterator at(svg.begin(), svg.end(), tag), end; at != end; ++at) {
        if ((*at)[1].length() > 0) {
            REQUIRE_FALSE(open.empty());
            REQUIRE(open.back() == (*at)[2].str());
            open.pop_back();
        } else if ((*at)[4].length() == 0) {
            open.push_back((*at)[2].str());
        }
    }
    CHECK(open.empty());
    for (const char* foreign : {"<script", "href", "@import", "url(http", "<image", "nan", "inf\""})
        CHECK_THAT(svg, !Contains(foreign));
}

size_t columns_of(const std::string& line) {
    size_t letters = 0;
    for (unsigned char c : line) letters += (c & 0xc0) != 0x80;
    return letters;
}

size_t widest(const std::string& text) {
    std::istringstream lines(text);
    size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, columns_of(line));
    return most;
}

}  // namespace

TEST_CASE("draw: schedules are drawn as reviewed") {
    for (const Schedule& schedule : {hand_gpipe(4, 8), hand_1f1b(4, 8)}) {
        const Picture shown = picture(schedule);
        check_golden("draw_hand_" + schedule.name + ".txt", draw_text(shown, {100, false}));
        check_golden("draw_hand_" + schedule.name + ".svg", draw_svg(shown));
        check_svg(draw_svg(shown));
    }
}

TEST_CASE("draw: a plan is drawn as reviewed, with memory and layouts") {
    const Picture shown = picture(split_mlp(), false, 0);
    check_golden("draw_mlp_dp2_tp2_micro2.txt", draw_text(shown, {100, false}));
    check_golden("draw_mlp_dp2_tp2_micro2.svg", draw_svg(shown));
    check_svg(draw_svg(shown));
}

TEST_CASE("draw: numbers of micro-batches fit their cells for 16 stages and 64 micro-batches") {
    const std::string svg = draw_svg(picture(hand_1f1b(16, 64)));
    check_svg(svg);
    std::smatch found;
    REQUIRE(std::regex_search(svg, found, std::regex(R"(\.n\{text-anchor:middle;font-size:([0-9.]+)px)")));
    const double size = std::stod(found[1]);
    CHECK(size >= 7);
    // A digit of a sans-serif font is at most 0.64 of its size wide.
    const std::regex cell(
        R"re(<rect class="[FBW]0" x="[0-9.]+" y="[0-9.]+" width="([0-9.]+)"[^\n]*\n<text class="n [^>]*>(\d+)<)re");
    int numbers = 0;
    for (std::sregex_iterator at(svg.begin(), svg.end(), cell), end; at != end; ++at, ++numbers)
        REQUIRE(static_cast<double>((*at)[2].length()) * size * 0.64 <= std::stod((*at)[1]));
    CHECK(numbers == 16 * 64 * 2);
}

TEST_CASE("draw: the memory curve has the arena's floor as its peak and ends every life") {
    const Plan plan = split_mlp();
    const Picture shown = picture(plan, false, 0);
    REQUIRE(shown.memory.size() == 1);
    const RankClass& c = plan.classes[0];
    const MemoryCurve& curve = shown.memory[0];
    CHECK(curve.peak == c.persistent_bytes + c.scratch_floor);
    // One point an instruction, and one behind each of 4 fragments and behind the update; nothing runs before them.
    CHECK(curve.points.size() == c.stream.size() + 5);
    CHECK(curve.points.back().all() == 0);
    for (size_t i = 1; i < curve.points.size(); ++i) CHECK(curve.points[i].time >= curve.points[i - 1].time);
    // By hand: what lives at each instruction. One that runs once a step between two fragments counts to the first.
    size_t last = 0;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (c.stream[i].fragment.micro >= 0) last = i;
    Fragment slot = c.stream[0].fragment;
    for (size_t i = 0, point = 0; i < c.stream.size(); ++i, ++point) {
        Fragment own = c.stream[i].fragment;
        if (own.kind == Fragment::Kind::weight) own.kind = Fragment::Kind::backward;  // it runs with its B
        if (!(own == slot) && (own.micro >= 0 || i > last)) {
            ++point;
            slot = own;
        }
        int64_t alive = 0;
        for (const Buffer& b : c.buffers)
            if (b.arena == Arena::scratch && b.first >= 0 && b.first <= static_cast<int>(i) &&
                static_cast<int>(i) <= b.last)
                alive += aligned(b.bytes);
        CHECK(curve.points.at(point).all() == alive);
    }
}

TEST_CASE("draw: params that differ by their layer's number share a row; each view has its bytes") {
    const Picture shown = picture(split_mlp(), false, 0);
    bool found = false;
    for (const ParamRow& row : shown.params) {
        if (row.rest.splits.empty()) continue;
        found = true;
        CHECK(row.rest.splits.size() == 1);
        CHECK(row.rest.splits[0].axis == "tp");
        CHECK(row.rest.parts == 2);
        CHECK(row.rest.text == "mlp/tp");
    }
    CHECK(found);
}

TEST_CASE("draw: text keeps to its width and says all without colour") {
    for (int width : {40, 80, 200}) {
        for (const Schedule& schedule : {hand_1f1b(2, 2), hand_1f1b(4, 8), hand_1f1b(16, 64), hand_gpipe(8, 300)}) {
            const std::string text = draw_text(picture(schedule), {width, false});
            CAPTURE(width, schedule.ranks.size(), text);
            CHECK(text.find('\033') == std::string::npos);
            // The two lines of facts may be longer than a narrow terminal.
            const size_t timeline = text.find("\n\n");
            CHECK(widest(text.substr(timeline, text.find("F forward") - timeline)) <= static_cast<size_t>(width));
        }
    }
    const std::string plain = draw_text(picture(hand_1f1b(4, 8)), {100, false});
    const std::string coloured = draw_text(picture(hand_1f1b(4, 8)), {100, true});
    CHECK(coloured != plain);
    CHECK(std::regex_replace(coloured, std::regex("\033\\[[0-9;]*m"), "") == plain);
}

TEST_CASE("draw: by flops a stage takes as long as its work") {
    const Plan plan = split_mlp();
    const Picture shown = picture(plan, true, 0);
    const auto& slots = shown.timeline.ranks.at(0);
    REQUIRE(slots.size() == 4);
    CHECK(slots[0].end - slots[0].start == 1000);
    double flops[2] = {0, 0};  // of micro-batch 0, forward and backward
    for (const Instruction& i : plan.classes[0].stream)
        if (i.fragment.micro == 0)
            flops[i.fragment.kind != Fragment::Kind::forward] += local_flops(plan, i, plan.classes[0]);
    CHECK(static_cast<double>(slots[1].end - slots[1].start) == Approx(1000 * flops[1] / flops[0]).margin(1));
    CHECK_THAT(draw_text(shown, {100, false}), Contains("by flops"));
}
