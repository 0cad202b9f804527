// Which part of a plan or setting one rank has otherwise.
#include "run/control/agreement.h"

#include <catch2/catch.hpp>

#include "config/load.h"
#include "layout_models.h"
#include "orrery/error.h"
#include "plan/print.h"
#include "plan_ranks.h"
#include "ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

Plan two_stages() {
    Model m = network({0, 1}, true);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    const Schedule schedule = hand_1f1b(2, 4);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return compile(m.program, Mesh({{"pp", 2}, {"dp", 2}}).with_microbatches(4), options).plan;
}

/// What ranks with these parts are told, all the same; "": they agree.
std::string told(const std::vector<Agreement>& parts) {
    const auto ranks = static_cast<int64_t>(parts.size());
    std::vector<std::string> said(parts.size());
    run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
        Exchange exchange(rendezvous, "0", rank, ranks, std::chrono::seconds(20));
        const auto at = static_cast<size_t>(rank);
        try {
            require_agreement(exchange, "plan", parts[at], "n" + std::to_string(rank));
        } catch (const Error& error) {
            said[at] = error.fault() == Fault::usage ? error.what() : "another fault";
        }
    });
    for (const std::string& text : said) CHECK(text == said[0]);
    return said[0];
}

/// Of ranks of which the third has the second plan.
std::string told(const Plan& first, const Plan& second) {
    return told({fingerprints(first), fingerprints(first), fingerprints(second)});
}

}  // namespace

TEST_CASE("agreement: the first rank that differs is named, with its values") {
    const Agreement ours{{"train.steps", "300"}, {"run.seed", "1"}};
    CHECK(told({ours, ours}).empty());
    CHECK_THAT(told({ours, ours, {{"train.steps", "200"}, {"run.seed", "1"}}}),
               Contains("rank 2 on host n2 and rank 0 on host n0") && Contains("train.steps: 200, rank 0 has 300") &&
                   !Contains("run.seed"));
    CHECK_THAT(told({ours, {{"run.seed", "1"}}}), Contains("train.steps: nothing, rank 0 has 300"));
    // The first of several, wherever it is in the tree.
    for (const size_t odd : {1, 6, 19, 20, 21}) {
        std::vector<Agreement> parts(22, ours);
        parts[odd] = parts[21] = {{"run.seed", "2"}};
        CHECK_THAT(told(parts), Contains("rank " + std::to_string(odd) + " on host"));
    }
    std::vector<Agreement> first_is_odd(22, ours);
    first_is_odd[0] = {{"run.seed", "2"}};
    CHECK_THAT(told(first_is_odd), Contains("rank 1 on host"));
}

TEST_CASE("agreement: what hosts may have otherwise takes no part, and the rest does") {
    const auto parts = [](const std::string& key, const std::string& value) {
        return settings_of(parse_config("", "", std::vector<std::string>{key + "=" + value}));
    };
    for (const char* key : {"metrics.prometheus", "data.tokenizer", "data.path", "run.folder"}) {
        INFO(key);
        CHECK(parts(key, "'/a'") == parts(key, "'/b'"));
    }
    CHECK(parts("run.device", "'a'") != parts("run.device", "'b'"));
    CHECK(parts("transport.axis.dp", "'a'") != parts("transport.axis.dp", "'b'"));
    CHECK(parts("data.validation", "0.1") != parts("data.validation", "0.2"));
}

TEST_CASE("agreement: a plugin says which of its keys are a host's, and one that is not read takes no part") {
    const auto parts = [](const std::string& value, const auto& read) {
        Config config = parse_config("", "", std::vector<std::string>{"transport.mine.key=" + value});
        read(config.table("transport").table("mine"));
        return settings_of(config);
    };
    const auto same = [&](const auto& read) { return parts("'a'", read) == parts("'b'", read); };
    CHECK(same([](Config&) {}));
    CHECK_FALSE(same([](Config& table) { table.text("key", ""); }));
    CHECK(same([](Config& table) {
        table.text("key", "");
        table.of_host("key");
        table.of_host("other");
    }));
}

TEST_CASE("agreement: of two plans the class and the messages that differ are named") {
    const Plan good = two_stages();
    CHECK(told(good, two_stages()).empty());
    const auto find = [](RankClass& c, Opcode what) {
        return std::find_if(c.stream.begin(), c.stream.end(), [&](const Instruction& i) { return i.opcode == what; });
    };
    SECTION("a place of one class") {
        Plan other = good;
        other.classes[1].buffers[2].offset += 64;
        const std::string text = told(good, other);
        CHECK_THAT(text, Contains("rank 2") && Contains("class 1 (ranks 2..3)") && !Contains("class 0"));
    }
    SECTION("a message of one edge") {
        Plan other = good;
        find(other.classes[1], Opcode::send)->tag += 100;
        const std::string text = told(good, other);
        CHECK_THAT(text, Contains("what class 1 sends class 0 over pp") && Contains("class 1 (ranks 2..3)"));
        CHECK_THAT(text, !Contains("is to send"));
    }
    SECTION("the order of fragments, places of the host, names") {
        for (int change = 0; change < 3; ++change) {
            Plan other = good;
            if (change == 0) other.classes[0].stream[5].fragment.kind = Fragment::Kind::weight;
            if (change == 1) std::swap(other.classes[0].places[0], other.classes[0].places[1]);
            if (change == 2) other.program.results[0].name = "another";
            INFO("change " << change);
            CHECK(fingerprint(other) != fingerprint(good));
            CHECK_THAT(told(good, other),
                       Contains(change == 2 ? "inputs, results and updates" : "class 0 (ranks 0..1)"));
        }
    }
}
