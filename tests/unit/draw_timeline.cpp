// Drawings of few and of many pipeline ranks, with and without a simulated step: labels, sizes, lanes and ticks.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "draw/parts.h"
#include "draw/picture.h"
#include "draw/ticks.h"
#include "schedules.h"
#include "svg_labels.h"

using namespace orrery;
using namespace orrery::test;
using namespace orrery::drawing;
using Catch::Matchers::Contains;

namespace {

constexpr size_t largest_file = 2'000'000;

size_t count(const std::string& text, const std::string& words) {
    size_t found = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
    return found;
}

/// A picture as `orrery simulate` makes it: a step of 5.4 s, of whose fragments tp takes every third part: half of that
/// is exposed. dp is exposed in the last twentieth of the step, and pp is always hidden.
Picture simulated(const Schedule& schedule) {
    Picture made = picture(schedule);
    Timeline& t = made.timeline;
    const int64_t unit = 5'400'000'000 / t.makespan;
    made.unit.clear();
    made.unit_s = 1e-9;
    t.makespan *= unit;
    const auto end = static_cast<double>(t.makespan);
    for (size_t r = 0; r < t.ranks.size(); ++r) {
        RankActivity& activity = made.activity.emplace_back();
        activity.rank = 1024 * static_cast<int64_t>(r);
        activity.computing = 0.614;
        activity.waiting = 0.033;
        activity.once = {{end * 0.99, end}};
        activity.lanes = {{"pp", {}, {}}, {"dp", {{end * 0.9, end}}, {{end * 0.95, end}}}, {"pp+tp", {}, {}}};
        t.busy[r] *= unit;
        for (Slot& slot : t.ranks[r]) {
            slot.start *= unit;
            slot.end *= unit;
            const auto from = static_cast<double>(slot.start), long_by = static_cast<double>(slot.end - slot.start);
            for (const double part : {0.0, 0.5}) {
                const double at = from + part * long_by;
                activity.lanes[2].busy.emplace_back(at, at + long_by / 6);
                activity.lanes[2].exposed.emplace_back(at, at + long_by / 12);
            }
            activity.lanes[0].busy.emplace_back(from + long_by * 0.98, from + long_by);
        }
        MemoryCurve& curve = made.memory.emplace_back();
        curve.rank = static_cast<int>(r);
        curve.ranks = "ranks " + std::to_string(1024 * r) + ".." + std::to_string(1024 * r + 1023);
        curve.persistent = int64_t{10} << 30;
        for (const Slot& slot : t.ranks[r]) {
            const int64_t bytes = (int64_t{1} << 27) * (slot.fragment.micro % 7 + 1);
            curve.points.push_back({static_cast<double>(slot.start), bytes, bytes, bytes / 4});
            curve.peak = std::max(curve.peak, curve.persistent + curve.points.back().all());
        }
    }
    made.memory[made.memory.size() * 2 / 5].peak += int64_t{2} << 30;  // the fullest of all
    made.memory_limit = int64_t{16} << 30;
    return made;
}

}  // namespace

TEST_CASE("draw: no label covers another one and files are small, from 1 to 512 pipeline ranks") {
    for (const int64_t stages : {1, 4, 10, 16, 17, 64, 512}) {
        CAPTURE(stages);
        const Schedule schedule = hand_1f1b(stages, 2 * stages);
        for (const Picture& shown : {picture(schedule), simulated(schedule)}) {
            const std::string svg = draw_svg(shown);
            check_labels(svg);
            CHECK(svg.size() < largest_file);
        }
    }
    // Many micro-batches on few ranks, and stages whose lists of two digits stand next to the names of ranks.
    const std::string many = draw_svg(simulated(hand_1f1b(4, 4000)));
    check_labels(many);
    CHECK(many.size() < largest_file);
    Schedule chunks{"chunks", {}, {}};
    for (int rank = 0; rank < 12; ++rank) chunks.ranks.push_back(RankSchedule::parse("F0 F0.1 F0.2 B0.2 B0.1 B0"));
    check_labels(draw_svg(simulated(chunks)));
}

TEST_CASE("draw: few pipeline ranks have their lanes below them, with exposed and hidden shares") {
    const Picture shown = simulated(hand_1f1b(4, 8));
    const std::string svg = draw_svg(shown);
    CHECK(count(svg, "<rect class=\"lane\"") == 4 * 3);
    CHECK(count(svg, ">pp+tp</text>") == 4);
    CHECK(count(svg, "<path class=\"once\"") == 4);
    CHECK(count(svg, "<path class=\"exposed\"") == 4 * 2);  // pp is hidden
    CHECK(count(svg, ">exposed 5.0 %, hidden 5.0 %</text>") == 4);
    const double busy = static_cast<double>(shown.timeline.busy[0]) / static_cast<double>(shown.timeline.makespan);
    CHECK_THAT(svg, Contains(fmt::format(">exposed {0:.1f} %, hidden {0:.1f} %<", 100 * busy / 6)));
    CHECK_THAT(svg, Contains(">computing 61.4 %, waiting 3.3 %, holds 4<"));
    CHECK_THAT(svg, Contains(">rank 3072<"));
    CHECK_THAT(svg, !Contains("evenly chosen") && !Contains("share of the time"));
    // Without a simulated step there is nothing to say about communication.
    CHECK_THAT(draw_svg(picture(hand_1f1b(4, 8))), !Contains("class=\"exposed\"") && !Contains("(exposed)"));
}

TEST_CASE("draw: many pipeline ranks are thin rows and some of them have lanes, and the picture says which") {
    const std::string some = draw_svg(simulated(hand_1f1b(64, 128)));
    CHECK(count(some, "<rect class=\"idle\"") == 1 + 64 + 4 + 1);  // in the legend, of all, of 4 with lanes, enlarged
    CHECK(count(some, "<rect class=\"lane\"") == 4 * 3 + 3);
    CHECK_THAT(some, Contains("4 of 64 pipeline ranks, evenly chosen") && !Contains("64 of 64"));
    CHECK_THAT(some, Contains("exposed on all: pp 0.0 %, dp 5.0 %, pp+tp 11.2 %"));
    CHECK_THAT(some, Contains(">stage 0<") && Contains(">stage 63<"));
    CHECK_THAT(some, Contains("8 of 64 classes of ranks, the fullest among them") && Contains("ranks 25600..26623"));
    const std::string most = draw_svg(simulated(hand_1f1b(512, 1024)));
    CHECK(count(most, "<rect class=\"idle\"") == 1 + 64 + 4 + 1);
    CHECK_THAT(most, Contains("64 of 512 pipeline ranks, evenly chosen"));
    CHECK_THAT(most, Contains("height of a colour: its share of the time"));
    CHECK_THAT(most, Contains("height in a lane: its share of the time"));
    CHECK_THAT(most, Contains(">stage 511<"));
    const std::string text = draw_text(picture(hand_1f1b(512, 1024)), {100, false});
    CHECK_THAT(text, Contains("32 of 512 pipeline ranks, evenly chosen") && Contains("the largest part of its time"));
    CHECK_THAT(text, Contains("FFFF....") && Contains("..xxxx") && Contains("xBBBB"));
}

TEST_CASE("draw: the axis of time has round ticks in a unit of time") {
    const std::string svg = draw_svg(simulated(hand_1f1b(4, 8)));
    for (const char* label : {">0.0<", ">0.5<", ">5.0<", ">time, in s<"}) CHECK_THAT(svg, Contains(label));
    CHECK_THAT(svg, Contains("F0 of stage 0 on pipeline rank 0: 0 s to "));
    const std::string plain = draw_svg(picture(hand_1f1b(4, 600)));
    CHECK_THAT(plain, Contains(">1,000<") && !Contains(" K<") && !Contains(" K "));

    const auto ticks = [](double span, double largest, int most) {
        const Ticks made = time_ticks(span, largest, most);
        return made.text(made.step) + " " + made.text(10 * made.step) + " " + made.name;
    };
    CHECK(ticks(5.4, 5.4, 11) == "0.5 5.0 s");
    CHECK(ticks(1.2, 1.2, 6) == "0.2 2.0 s");
    CHECK(ticks(0.95, 0.95, 10) == "100 1,000 ms");
    CHECK(ticks(0.012, 0.012, 6) == "2 20 ms");
    CHECK(ticks(0.0001, 0.012, 10) == "0.01 0.10 ms");
    CHECK(ticks(3e-7, 3e-7, 10) == "50 500 ns");
    CHECK(ticks(2500, 2500, 10) == "500 5,000 s");
    const Ticks bytes = byte_ticks(1.5 * (1 << 30), 8);
    CHECK(bytes.text(bytes.step) + " " + bytes.name == "0.2 GiB");
    CHECK(tick_step(0, 5) == 1);
    for (const double span : {1e-7, 0.03, 0.9, 1.0, 7.0, 99.0, 12345.0})
        for (const int most : {2, 5, 9}) {
            CHECK(span / tick_step(span, most) <= most);
            CHECK(span / tick_step(span, most) * 2.5 >= most);
        }
}

TEST_CASE("draw: shares of the parts of a time, as a path that skips what does not change") {
    const Intervals times{{0, 1}, {1.5, 3}, {3.25, 3.5}, {9, 20}};
    CHECK(shares(times, 0, 10, 5) == std::vector<double>{0.75, 0.625, 0, 0, 0.5});
    CHECK(total(times) == 13.75);
    CHECK(shares({}, 0, 10, 2) == std::vector<double>{0, 0});
    CHECK(shares(times, 1, 1, 2) == std::vector<double>{0, 0});
    CHECK(steps_path({0, 1, 1, 0.5, 0.001, 0}, 0, 60, 100, 10) == "M0,100H10V90H30V95H40V99H50V100Z");
    CHECK(steps_path({1, 1}, 5, 25, 100, 10) == "M5,100H5V90H25V100Z");
    CHECK(boxes_path({{0, 1}, {2, 2.001}}, 10, 5, 3, 9, 1) == "M10.5,3h4v9h-4zM20.5,3h0.5v9h-0.5z");
    CHECK(evenly(3, 5) == std::vector<size_t>{0, 1, 2});
    CHECK(evenly(512, 4) == std::vector<size_t>{0, 170, 341, 511});
    CHECK(evenly(0, 4).empty());
}
