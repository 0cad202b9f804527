// Which part of a plan or setting one rank has otherwise.
#include "run/control/agreement.h"

#include <catch2/catch.hpp>

#include "layout_models.h"
#include "orrery/error.h"
#include "plan/print.h"
#include "plan_ranks.h"
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

/// What a rank with the second plan is told by the others.
std::string told(const Plan& first, const Plan& second) {
    try {
        require_agreement({encode(fingerprints(first)), encode(fingerprints(first)), encode(fingerprints(second))});
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::peer);
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("agreement: the first rank that differs is named, with its values") {
    const Agreement ours{{"train.steps", "300"}, {"run.seed", "1"}};
    CHECK_NOTHROW(require_agreement({encode(ours), encode(ours)}));
    CHECK_THROWS_WITH(
        require_agreement({encode(ours), encode(ours), encode({{"train.steps", "200"}, {"run.seed", "1"}})}),
        Contains("rank 2 and rank 0") && Contains("train.steps: 200, rank 0 has 300") && !Contains("run.seed"));
    CHECK_THROWS_WITH(require_agreement({encode(ours), encode({{"run.seed", "1"}})}),
                      Contains("train.steps: nothing, rank 0 has 300"));
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
