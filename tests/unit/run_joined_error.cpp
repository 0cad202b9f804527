// What a rank says when a message that joins many gradients fails: why, then where, in a few words.
#include <catch2/catch.hpp>

#include <thread>

#include "layout_models.h"
#include "plan/print.h"
#include "plan_ranks.h"
#include "run/group.h"
#include "run/rendezvous.h"

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
    Config config;
    config.set("threads", {int64_t{1}, {}, false});
    const auto device = registry().device("cpu", {})(config);
    Config none_set;
    const auto transport = registry().transport("threads", {})(none_set);
    const RankClass& c = lowered.plan.class_of(rank);
    std::vector<Memory> arenas;
    for (int64_t bytes : {lowered.persistent.bytes(c.stage), c.scratch_bytes})
        arenas.push_back(device->allocate(std::max<int64_t>(64, bytes), MemoryKind::device));
    const auto communicator =
        transport->make(group_along(lowered.plan.mesh, rank, 0, ""), rendezvous, arenas, std::chrono::seconds(20));
    communicator->abort("the cable is cut");
    std::string said = "nothing";
    try {
        Executor(lowered.plan, rank, *device, {communicator.get(), nullptr}, arenas[0].data, arenas[1].data).run();
    } catch (const Error& error) {
        said = error.what();
    }
    for (Memory& arena : arenas) device->release(arena);
    return said;
}

}  // namespace

TEST_CASE("a message that joins many gradients is told by two of them and a count") {
    const Lowered lowered = joined();
    const RankClass& c = lowered.plan.classes[0];
    size_t members = 0;
    for (size_t i = 0; i < c.stream.size(); ++i) {
        const size_t operands = c.stream[i].operands.size();
        if (c.stream[i].what != Do::all_reduce || operands <= 4) continue;
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
