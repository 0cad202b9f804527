// Messages between ranks that share a stream: peers counted from the rank's own member.
#include <catch2/catch.hpp>

#include <set>

#include "draw/picture.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/chunks/chunks.h"
#include "plan/print.h"
#include "plan/replay/plan_view.h"

using namespace orrery;
using Catch::Matchers::Contains;
using C = TransportContract;

namespace {

constexpr Opcode send = Opcode::send, receive = Opcode::receive, all_reduce = Opcode::all_reduce;

struct Line {
    Opcode what;
    int buffer = 0;
    int by = 0;
    int queue = 1;
    std::vector<int> waits = {};
};

/// Ranks of dp that run these lines; buffer 0 holds an input, "x".
Plan ring(int64_t members, const std::vector<Line>& lines) {
    Plan plan;
    plan.mesh = Mesh({{"dp", members}});
    Value x;
    x.name = "x";
    x.type = {DType::f32, {16}};
    x.role = Role::input;
    x.layout = Layout(1);
    plan.program.values.push_back(x);
    RankClass& c = plan.classes.emplace_back();
    for (int64_t rank = 0; rank < members; ++rank) c.ranks.push_back(rank);
    c.persistent_bytes = 64;
    c.scratch_bytes = 192;
    const int end = static_cast<int>(lines.size()) - 1;
    c.buffers.push_back({Arena::persistent, 0, 64, 0, BufferUse::input, 0, end});
    for (int64_t b = 0; b < 3; ++b)
        c.buffers.push_back({Arena::scratch, 64 * b, 64, none, BufferUse::activation, 0, end});
    c.places.push_back({0, 0, x.type, 0});
    for (const Line& line : lines) {
        Instruction& i = c.stream.emplace_back();
        i.opcode = line.what;
        i.axis = 0;
        i.queue = line.queue;
        i.waits = line.waits;
        i.peer = line.by;
        i.relative = true;
        i.operands.push_back({line.buffer, 0, x.type, line.buffer == 0 ? 0 : none});
    }
    return plan;
}

Network with(C::Send semantics, C::Lanes lanes, int slots = 0) {
    C contract;
    contract.send = semantics;
    contract.lanes = lanes;
    contract.slots = slots;
    return {{"dp", contract}};
}

const Network grouped = with(C::Send::grouped, C::Lanes::communicator);
const Network apart = with(C::Send::rendezvous, C::Lanes::peer_and_direction);
const Network together = with(C::Send::rendezvous, C::Lanes::communicator);

int actors(const Plan& plan, int64_t members) {
    return PlanView(plan, apart, classes_of_ranks(plan), members).view().actors();
}

}  // namespace

TEST_CASE("relative peers: printed, named and part of the fingerprint") {
    Plan plan = ring(4, {{send, 0, 1, 1}, {receive, 1, 3, 2}});
    CHECK_THAT(print(plan), Contains("send dp peer=+1 tag=0") && Contains("receive dp peer=+3 tag=0"));
    CHECK_THAT(describe(plan, plan.classes[0], 0), Contains("send x over dp, member +1"));
    std::set<std::string> all;
    for (const bool relative : {false, true})
        for (int peer = 0; peer < 4; ++peer) {
            plan.classes[0].stream[0].relative = relative;
            plan.classes[0].stream[0].peer = peer;
            all.insert(fingerprint(plan));
        }
    CHECK(all.size() == 8);
    CHECK(plan.classes[0].stream[1].peer_of(1, 4) == 0);
    CHECK(plan.classes[0].stream[1].peer_of(0, 4) == 3);
}

TEST_CASE("relative peers: drawn") {
    Plan plan = ring(4, {{send, 0, 1}, {receive, 1, 3}, {send, 0, 1}, {send, 0, 2}});
    plan.schedule = sequential_schedule(1);
    const std::string text = draw_text(picture(plan, false, 0), {});
    CHECK_THAT(text, Contains("class 0: each member of axis dp sends to member +1, 2 messages a step"));
    CHECK_THAT(text, Contains("class 0: each member of axis dp sends to member +2, 1 messages a step"));
    for (Instruction& i : plan.classes[0].stream) i.relative = false;
    CHECK_THAT(draw_text(picture(plan, false, 0), {}), !Contains("each member"));
}

TEST_CASE("relative peers: form") {
    CHECK_NOTHROW(check_form(ring(4, {{send, 0, 3}}), apart));
    CHECK_THROWS_WITH(check_form(ring(4, {{send, 0, 0}}), apart),
                      Contains("member +0 is out of range: the axis has 4"));
    CHECK_THROWS_WITH(check_form(ring(4, {{send, 0, 4}}), apart),
                      Contains("member +4 is out of range: the axis has 4"));
    Plan plan = ring(4, {{send, 0, 1}});
    plan.classes[0].stream[0].relative = false;
    CHECK_NOTHROW(check_form(plan, apart));
    plan.classes[0].stream[0].peer = none;
    CHECK_THROWS_WITH(check_form(plan, apart), Contains("member -1 is out of range: the axis has 4"));
}

TEST_CASE("a queue holds what the transport keeps in order") {
    const std::vector<Line> to_both{{send, 0, 1}, {send, 0, 2}}, both_ways{{send, 0, 1}, {receive, 1, 1}};
    const Network by_peer = with(C::Send::rendezvous, C::Lanes::peer);
    CHECK_NOTHROW(check_form(ring(4, to_both), together));
    CHECK_THROWS_WITH(check_form(ring(4, to_both), by_peer), Contains("shares queue 1 with instruction 0"));
    CHECK_THROWS_WITH(check_form(ring(4, to_both), apart), Contains("in one lane per peer and direction"));
    CHECK_NOTHROW(check_form(ring(4, both_ways), together));
    CHECK_NOTHROW(check_form(ring(4, both_ways), by_peer));
    CHECK_THROWS_WITH(check_form(ring(4, both_ways), apart), Contains("shares queue 1"));
    Plan mixed = ring(4, {{send, 0, 1}, {send, 0, 1}});  // the same member of some ranks, not of all
    mixed.classes[0].stream[1].relative = false;
    CHECK_THROWS_WITH(check_form(mixed, by_peer), Contains("shares queue 1"));
}

TEST_CASE("a shift ends where sends leave the thread and the lane free") {
    const Plan plan = ring(4, {{send, 0, 1}, {receive, 1, 3}}), turned = ring(4, {{receive, 1, 3}, {send, 0, 1}});
    for (const int64_t members : {64, 1}) {
        CHECK_NOTHROW(check_deadlock(plan, apart, members));
        CHECK_NOTHROW(check_deadlock(plan, grouped, members));
        CHECK_NOTHROW(check_deadlock(turned, grouped, members));
        CHECK_NOTHROW(check_deadlock(plan, with(C::Send::buffered, C::Lanes::communicator, 1), members));
        CHECK_THROWS_WITH(check_deadlock(plan, together, members), Contains("never ends"));
        CHECK_THROWS_WITH(check_deadlock(turned, apart, members), Contains("never ends"));
        CHECK_THROWS_WITH(check_deadlock(ring(4, {{send, 0, 1}, {receive, 1, 1}}), apart, members),
                          Contains("waits for a partner that never comes"));
        CHECK_THROWS_WITH(check_deadlock(ring(4, {{send, 0, 1}}), apart, members), Contains("never ends"));
        CHECK_THROWS_WITH(
            check_deadlock(ring(4, {{send, 0, 1}}), with(C::Send::buffered, C::Lanes::communicator, 1), members),
            Contains("is sent but never received"));
        Plan tags = plan;
        tags.classes[0].stream[0].tag = 7;
        CHECK_THROWS_WITH(check_deadlock(tags, apart, members), Contains("tag 7") && Contains("tag 0"));
    }
    // Half way round and back meet one member: two messages each way between two ranks.
    CHECK_NOTHROW(check_deadlock(ring(2, {{send, 0, 1}, {receive, 1, 1}}), apart));
    // Members are named where they are played, and a long cycle is cut.
    CHECK_THROWS_WITH(check_deadlock(turned, apart), Contains("at dp=0") && Contains("at dp=3"));
    const Plan many = ring(60, {{receive, 1, 59}, {send, 0, 1}});
    CHECK_THROWS_WITH(check_deadlock(many, apart), Contains("more, which waits for"));
    CHECK_THROWS_WITH(check_deadlock(many, apart, 1), !Contains("at dp="));
}

TEST_CASE("who is played") {
    const Plan plan = ring(4, {{send, 0, 1}, {receive, 1, 3}});
    CHECK(actors(plan, 4) == 4);
    CHECK(actors(plan, 3) == 1);
    Plan quiet = plan;
    quiet.classes[0].stream.clear();
    CHECK(actors(quiet, 64) == 1);
    // Two axes: the first that fits.
    Plan two = plan;
    two.mesh = Mesh({{"dp", 4}, {"tp", 4}});
    for (int64_t rank = 4; rank < 16; ++rank) two.classes[0].ranks.push_back(rank);
    CHECK(actors(two, 64) == 4);
    for (Instruction i : plan.classes[0].stream) {
        i.axis = 1;
        two.classes[0].stream.push_back(i);
    }
    CHECK(actors(two, 16) == 16);
    CHECK(actors(two, 15) == 4);
    CHECK(actors(two, 1) == 1);
    // A fixed member on the same axis: no rotation, whatever their number.
    Plan fixed = plan;
    fixed.classes[0].stream[1].relative = false;
    fixed.classes[0].stream[1].peer = 0;
    CHECK_THROWS_WITH(actors(fixed, 1), Contains("is a message of a rank to itself"));
    // Two classes along the axis: each of their ranks is played.
    Plan halves = plan;
    halves.classes.push_back(halves.classes[0]);
    halves.classes[0].ranks = {0, 1};
    halves.classes[1].ranks = {2, 3};
    CHECK(actors(halves, 1) == 4);
    CHECK_NOTHROW(check_deadlock(halves, apart));
    halves.classes[1].stream.pop_back();
    CHECK_THROWS_WITH(check_deadlock(halves, apart), Contains("never ends") && Contains("class 0 (ranks 0..1)"));
    // One stream for ranks with other partners.
    Plan uneven = halves;
    uneven.mesh = Mesh({{"dp", 2}, {"tp", 2}});
    uneven.classes[0].ranks = {0, 1, 2};
    uneven.classes[1].ranks = {3};
    for (RankClass& c : uneven.classes)
        for (Instruction& i : c.stream) i.peer = 1;
    CHECK_THROWS_WITH(actors(uneven, 64), Contains("ranks 0 and 1 share a stream, but members 1"));
}

TEST_CASE("gathering to a fixed member plays all who send to it") {
    Plan plan = ring(4, {{send, 0, 0}});
    plan.classes[0].ranks = {1, 2, 3};
    plan.classes[0].stream[0].relative = false;
    RankClass first = plan.classes[0];
    first.ranks = {0};
    first.stream.assign(3, first.stream[0]);
    for (int m = 0; m < 3; ++m) {
        first.stream[static_cast<size_t>(m)].opcode = receive;
        first.stream[static_cast<size_t>(m)].peer = 1 + m;
    }
    plan.classes.insert(plan.classes.begin(), first);
    CHECK(actors(plan, 1) == 4);
    CHECK_NOTHROW(check_deadlock(plan, apart));
    plan.classes[0].stream[2].peer = 1;
    CHECK_THROWS_WITH(check_deadlock(plan, apart), Contains("never ends"));
}

TEST_CASE("what a relative message reads and writes is proved as any other's") {
    // x goes round: received in b1, sent on from there.
    const std::vector<Line> good{{send, 0, 1, 1}, {receive, 1, 3, 2}, {send, 1, 1, 1, {1}}, {receive, 2, 3, 2}};
    CHECK_NOTHROW(check_values(ring(4, good), apart));
    std::vector<Line> bad = good;
    bad[2].waits.clear();
    CHECK_THROWS_WITH(check_values(ring(4, bad), apart), Contains("a wait is missing"));
    bad = good;
    bad[3].buffer = 1;  // where the second send still reads
    CHECK_THROWS_WITH(check_values(ring(4, bad), apart), Contains("a wait is missing"));
    bad = good;
    bad[0].buffer = 3;
    CHECK_THROWS_WITH(check_values(ring(4, bad), apart), Contains("before anything is written there"));
    // In a group nothing is received before its end.
    CHECK_THROWS_WITH(check_values(ring(4, {{send, 0, 1}, {receive, 1, 3}, {send, 1, 1}, {receive, 2, 3}}), grouped),
                      Contains("is in one message group with"));
}

TEST_CASE("a collective made of messages stays apart from relative ones, too") {
    ChunkTable table = ring_table(4);
    table.name = "mine";
    Plan plan = ring(4, {{send, 0, 1}, {receive, 1, 3}, {all_reduce, 1, 0}});
    Instruction& sum = plan.classes[0].stream[2];
    sum.peer = none;
    sum.relative = false;
    sum.operands.push_back({2, 0, {DType::f32, {16}}, none});
    CHECK_NOTHROW(check_collective_tables(plan, {{"dp", {table}}}, apart));
    std::swap(plan.classes[0].stream[1], plan.classes[0].stream[2]);
    CHECK_THROWS_WITH(check_collective_tables(plan, {{"dp", {table}}}, apart), Contains("member +1"));
}

TEST_CASE("ranks of one class whose collectives have other members are refused") {
    // Along tp the classes stand AA, AB, BB, BA. A sums over tp, then over ep, B the other way round: ranks 1, 5, 7 and
    // 3 wait for each other, though the first ranks of the classes do not.
    Plan plan = ring(8, {{Opcode::all_reduce}, {Opcode::all_reduce}});
    plan.mesh = Mesh({{"tp", 2}, {"ep", 4}});
    plan.program.values[0].layout = Layout(2);
    for (Instruction& i : plan.classes[0].stream) {
        i.relative = false;
        i.peer = none;
        i.operands.push_back(i.operands.front());
    }
    plan.classes.push_back(plan.classes[0]);
    plan.classes[0].ranks = {0, 1, 4, 7};
    plan.classes[1].ranks = {2, 3, 5, 6};
    plan.classes[0].stream[1].axis = plan.classes[1].stream[0].axis = 1;
    CHECK_THROWS_WITH(check_deadlock(plan, {}),
                      Contains("share a stream") && Contains("both ranks cannot be of one class"));
    plan.classes[0].ranks = {0, 1, 2, 3};
    plan.classes[1].ranks = {4, 5, 6, 7};
    CHECK_NOTHROW(check_deadlock(plan, {}));
}
