// The one writer of traces: its text, what it reads back as, and what it refuses.
#include "trace/trace.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "base/json.h"
#include "golden.h"
#include "orrery/error.h"

using namespace orrery;

namespace {

std::string written(const std::vector<TraceSlice>& slices) {
    std::ostringstream out;
    TraceWriter writer(out, {{"program", "gpt"}, {"step", "10"}});
    std::set<int64_t> named;
    for (const TraceSlice& slice : slices) {
        if (named.insert(slice.process).second) writer.process(slice.process, "rank " + std::to_string(slice.process));
        writer.slice(slice);
    }
    writer.finish();
    return out.str();
}

TraceSlice bar(int64_t process, std::string lane, std::string name, double start, double duration) {
    return {process, std::move(lane), std::move(name), "compute", start, duration};
}

/// Two ranks of a pipeline, names that need escaping.
std::vector<TraceSlice> two_ranks() {
    TraceSlice forward = bar(0, "compute", "matmul", 0, 1.5e-3);
    forward.arguments = {{"value", std::string("h \"0\"\n")}, {"bytes", int64_t{4096}}, {"share", 0.5}};
    TraceSlice send = bar(0, "pp", "send pp", 1.5e-3, 2e-7);
    send.category = "communication";
    send.end = FlowEnd::from;
    send.flow = 1;
    TraceSlice receive = bar(1, "pp", "receive pp", 1e-4, 1.5e-3);
    receive.category = "communication";
    receive.end = FlowEnd::to;
    receive.flow = 1;
    return {forward, send, receive, bar(1, "compute", "gelu \xe2\x86\x92 \xff", 1.6e-3, 1e-9)};
}

}  // namespace

TEST_CASE("a trace is the golden text") { orrery::test::check_golden("trace.json", written(two_ranks())); }

TEST_CASE("a trace reads back: names, distinct threads, times, arrows inside their bars") {
    const Json json = parse_json(written(two_ranks()), {});
    CHECK(json["otherData"]["step"] == "10");
    std::map<int64_t, int64_t> process_of;  // by thread
    std::set<std::string> names;
    std::map<std::string, std::pair<double, double>> bars;  // by phase of its arrow
    std::map<std::string, double> arrows;
    int slices = 0;
    for (const Json& event : json["traceEvents"]) {
        const auto phase = event["ph"].get<std::string>();
        if (phase == "M") {
            const Json& name = event["args"].contains("name") ? event["args"]["name"] : Json("");
            names.insert(name.get<std::string>());
            if (event["name"] != "thread_name") continue;
            CHECK(process_of.emplace(event["tid"].get<int64_t>(), event["pid"].get<int64_t>()).second);
        }
        if (phase == "X") {
            ++slices;
            CHECK(process_of.at(event["tid"].get<int64_t>()) == event["pid"].get<int64_t>());
            const std::pair<double, double> span{event["ts"].get<double>(),
                                                 event["ts"].get<double>() + event["dur"].get<double>()};
            if (event["name"] == "send pp") bars["s"] = span;
            if (event["name"] == "receive pp") bars["f"] = span;
        }
        if (phase == "s" || phase == "f") {
            CHECK(event["id"] == 1);
            arrows[phase] = event["ts"].get<double>();
        }
    }
    CHECK(slices == 4);
    CHECK(process_of.size() == 4);
    CHECK(names.count("rank 1") == 1);
    CHECK(names.count("pp") == 1);
    for (const char* phase : {"s", "f"}) {
        CHECK(arrows.at(phase) >= bars.at(phase).first);
        CHECK(arrows.at(phase) < bars.at(phase).second);
    }
    CHECK(arrows["s"] <= arrows["f"]);  // the receive began long before
    CHECK(bars["f"].first < bars["s"].first);
}

TEST_CASE("bars of a lane may touch or lie in each other, not cut across") {
    const auto outer = bar(0, "step", "step 10", 0.1, 1);
    CHECK_NOTHROW(written({outer, bar(0, "step", "wait", 0.1, 0.2), bar(0, "step", "rest", 0.3, 0.8)}));
    CHECK_NOTHROW(written({outer, bar(1, "step", "another rank", 0.5, 2), bar(0, "compute", "another lane", 0.5, 2)}));
    // Ends and begins that differ by less than a nanosecond touch.
    CHECK_NOTHROW(written({bar(0, "a", "x", 0, 0.1 + 0.2), bar(0, "a", "y", 0.3, 0.1)}));
    CHECK_NOTHROW(written({bar(0, "a", "x", 0, 1e-9), bar(0, "a", "y", 4e-10, 1e-6)}));
    CHECK_THROWS_WITH(written({outer, bar(0, "step", "late", 0.5, 2)}),
                      Catch::Contains("late on step of process 0") && Catch::Contains("step 10"));
    CHECK_THROWS_WITH(written({outer, bar(0, "step", "early", 0, 0.05)}), Catch::Contains("early"));
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        CHECK_THROWS_AS(written({bar(0, "a", "x", bad, 1)}), Error);
        CHECK_THROWS_AS(written({bar(0, "a", "x", 1, bad)}), Error);
    }
}

TEST_CASE("an arrow has a bar to stand on, however short") {
    TraceSlice send = bar(0, "pp", "send", 1e-6, 0);
    send.end = FlowEnd::from;
    const Json json = parse_json(written({send, bar(0, "pp", "next", 1e-6, 1e-6)}), {});
    for (const Json& event : json["traceEvents"])
        if (event["ph"] == "X" && event["name"] == "send") CHECK(event["dur"].get<double>() == 0.001);
}
