// What a rank says when a message that joins many gradients fails: why, then where, in a few words.
#include <catch2/catch.hpp>

#include <thread>

#include "layout_models.h"
#include "plan/print.h"
#include "plan_ranks.h"
#include "run/control/rendezvous.h"

using namespace orrery;
using namespace orrery::test;

namespace {

Lowered joined() {
    Model m = deep(12, 4, 8);
    m.split_names({{"batch", "dp"}});
    m.program.bucket("dp", 1 << 20, {});
    return compile(m.program, Mesh({{"dp", 2}}));
}

/// What rank `rank` says of a step on communicators that were ended before.
std::string failure(const Lowered& lowered, int64_t rank, Rendezvous& rendezvous) {
    const auto device = cpu_device(false);
    RankContext context(setting_of(lowered, rank, *device, &rendezvous));
    context.abort("the cable is cut");
    try {
        context.executor(lowered.plan)->run();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing";
}

}  // namespace

TEST_CASE("a message that joins many gradients is told by two of them and a count") {
    const Lowered lowered = joined();
    const RankClass& c = lowered.plan.classes[0];
    size_t members = 0;
    for (size_t i = 0; i < c.stream.size(); ++i) {
        const size_t operands = c.stream[i].operands.size();
        if (c.stream[i].opcode != Opcode::all_reduce || operands <= 4) continue;
        members = operands / 2 - 1;
        const std::string text = describe(lowered.plan, c, static_cast<int>(i));
        INFO(text);
        CHECK(text.find(": all_reduce layers.") != std::string::npos);
        CHECK(text.find(".grad and " + std::to_string(members - 2) + " more over dp") != std::string::npos);
        CHECK(text.size() < 200);
    }
    CHECK(members >= 12);
}

TEST_CASE("a step that fails is told with the reason first, then where") {
    const Lowered lowered = joined();
    registry();
    LocalRendezvous rendezvous;
    std::string said[2];
    std::thread other([&] { said[1] = failure(lowered, 1, rendezvous); });
    said[0] = failure(lowered, 0, rendezvous);
    other.join();
    for (const std::string& text : said) {
        INFO(text);
        const size_t why = text.find("the cable is cut"), where = text.find("\n  in class 0 (ranks 0..1), instruction");
        REQUIRE(why != std::string::npos);
        REQUIRE(where != std::string::npos);
        CHECK(why < where);
        CHECK(text.starts_with("rank "));
    }
}
