// Tables of measured costs: what is written is read back, and what is wrong is named.
#include "plan/cost_table.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "orrery/error.h"

using namespace orrery;

namespace {

CostTable table() {
    CostTable t;
    t.made_by = "calibrate";
    t.device = "cpu";
    t.machine = "model name=Some CPU = fast\nthreads=2\n";
    t.facts = {{"mesh", "dp=2"}, {"host", "n\xff"}};
    t.totals = {{"step", 0.25}, {"waiting", 0}};
    KernelSpec pad{"pad", {}, {{DType::f32, {8, 512}}}, {{DType::bf16, {}}}};
    pad.attributes = {{"dim", int64_t{1}},  {"value", -std::numeric_limits<double>::infinity()},
                      {"scale", 2.0},       {"kind", std::string("tanh")},
                      {"accumulate", true}, {"perm", std::vector<int64_t>{0, 2, 1}}};
    t.kernels = {{pad, 2, {1.5e-6, 1.25e-6, 0.1, 12}},
                 {{"gelu", {}, {{DType::f32, {0}}}, {{DType::f32, {0}}}}, 1, {0}}};
    t.wires = {{"shm", "all_reduce", 2, 1 << 20, {1e-3, {}, 0.5, 7}, 2e-3}, {"gloo", "message", 2, 64, {1e-5}}};
    t.wires.back().axis = "pp";
    t.wires.back().mean_s = 2e-5;
    t.notes = {"ucx is left out: no \"card\""};
    return t;
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

/// Why the text is refused with `to` in place of `from`; "taken" where it is not.
std::string refused_of(const std::string& text, const std::string& from, const std::string& to) {
    try {
        parse_cost_table(changed(text, from, to), "here.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "taken";
}

}  // namespace

TEST_CASE("a table of costs reads back as it was") {
    const std::string text = cost_table_text(table());
    const CostTable back = parse_cost_table(text, "here.json");
    CHECK(cost_table_text(back) == text);
    CHECK(back.machine == table().machine);
    REQUIRE(back.kernels.size() == 2);
    CHECK(back.kernels[0].spec == table().kernels[0].spec);
    CHECK(back.kernels[1].spec == table().kernels[1].spec);
    CHECK(back.kernels[0].time.seconds == 1.5e-6);
    CHECK(back.kernels[0].time.least_s == 1.25e-6);
    CHECK(back.kernels[0].time.spread == 0.1);
    CHECK(back.kernels[0].time.samples == 12);
    CHECK_FALSE(back.kernels[1].time.least_s);
    REQUIRE(back.wires.size() == 2);
    CHECK(back.wires[0].processor_s == 2e-3);
    CHECK_FALSE(back.wires[1].processor_s);
    CHECK(back.wires[1].axis == "pp");
    CHECK(back.wires[1].mean_s == 2e-5);
    CHECK(back.totals == table().totals);
    CHECK(back.notes == table().notes);
}

TEST_CASE("a table that is wrong says where") {
    const std::string text = cost_table_text(table());
    const auto refused = [&](const std::string& from, const std::string& to) { return refused_of(text, from, to); };
    CHECK(refused("orrery costs", "orrery products") == "here.json: it is not a table of measured costs");
    CHECK_THAT(refused("\"version\": 1", "\"version\": 9"), Catch::Contains("here.json: it has version 9, expected 1"));
    CHECK_THAT(refused("f32[8,512]", "f32[8;512]"),
               Catch::Contains("here.json: row 1 of kernels") && Catch::Contains("f32[8;512]"));
    CHECK_THAT(refused("f32[0]", "g32[0]"), Catch::Contains("row 2 of kernels"));
    CHECK_THAT(refused("\"seconds\":1.5e-06", "\"seconds\":-1"),
               Catch::Contains("row 1 of kernels: seconds is -1, expected a number from 0"));
    CHECK_THAT(refused("\"ranks\":2", "\"ranks\":\"two\""), Catch::Contains("row 1 of communication"));
    CHECK_THAT(refused("\"samples\":7", "\"sample\":7"), Catch::Contains("samples"));
    CHECK_THROWS_WITH(parse_cost_table("{", "cut.json"), Catch::Contains("cut.json: not valid json"));
}

TEST_CASE("numbers and kinds of a table are checked where they are read") {
    CostTable numbers = table();
    numbers.facts = {{"processors", "2"}, {"ranks", "2"}, {"hosts", "1"}, {"threads", "1"}, {"steps", "10"}};
    const std::string text = cost_table_text(numbers);
    const auto refused = [&](const std::string& from, const std::string& to) { return refused_of(text, from, to); };
    REQUIRE(cost_table_text(parse_cost_table(text, "here.json")) == text);
    for (const char* fact : {"processors", "ranks", "hosts", "threads", "steps"}) {
        const std::string key = "\"" + std::string(fact) + "\":";
        const size_t at = text.find(key, text.find("\"facts\"")) + key.size();
        const std::string was = key + text.substr(at, text.find_first_of(",}", at) - at);
        for (const char* wrong : {"null", "2", "-1", "\"-1\"", "\"2.5\"", "\"\"", "\"two\"", "\"nan\"", "\"1e300\"",
                                  "\"99999999999999999999\"", "\"4503599627370496\"", "[2]"}) {
            CAPTURE(fact, wrong);
            CHECK_THAT(refused(was, key + wrong), Catch::Contains("here.json: facts." + std::string(fact) + " is " +
                                                                  wrong + ", expected a whole number as text"));
        }
    }
    CHECK_THAT(refused("\"processors\":\"2\"", "\"processors\":\"0\""), Catch::Contains("facts.processors is \"0\""));
    CHECK_THAT(refused("\"ranks\":\"2\"", "\"ranks\":\"0\""), Catch::Contains("facts.ranks is \"0\""));
    CHECK_THAT(refused("\"hosts\":\"1\"", "\"hosts\":\"0\""), Catch::Contains("facts.hosts is \"0\""));
    for (const char* wrong : {"null", "\"0.25\"", "-1", "1e+300", "true"})
        CHECK_THAT(refused("\"step\":0.25", "\"step\":" + std::string(wrong)),
                   Catch::Contains("here.json: step_seconds.step is " + std::string(wrong)));
    for (const char* wrong : {"null", "-1", "1.5", "\"7\"", "9223372036854775807"})
        CHECK_THAT(refused("\"samples\":7", "\"samples\":" + std::string(wrong)),
                   Catch::Contains("row 1 of communication: samples is " + std::string(wrong)));
    CHECK_THAT(refused("\"ranks\":2,", "\"ranks\":0,"),
               Catch::Contains("row 1 of communication: ranks is 0, expected 1"));
    CHECK_THAT(refused("\"threads\":2,", "\"threads\":4294967296,"),
               Catch::Contains("row 1 of kernels: threads is 4294967296"));
    CHECK_THAT(refused("f32[8,512]", "f32[4294967296,4294967296]"),
               Catch::Contains("more than 1125899906842624 elements"));
    CHECK_THAT(refused("\"threads\":\"2\"", "\"threads\":2"), Catch::Contains("machine.threads is 2, expected text"));
    CHECK_THAT(refused("\"made_by\": \"calibrate\"", "\"made_by\": null"),
               Catch::Contains("made_by is null, expected text"));
    CHECK_THAT(refused("\"kernels\": [", "\"kernels\": null, \"more\": ["),
               Catch::Contains("kernels is null, expected a list"));
    CHECK_THAT(refused("\"facts\": {", "\"facts\": null, \"more\": {"),
               Catch::Contains("facts is null, expected an object"));
}
