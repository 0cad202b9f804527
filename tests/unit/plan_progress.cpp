// Plans that never end where one thread issues a rank's stream in order.
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/chunks/chunks.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;
using C = TransportContract;

namespace {

/// "send 1", "receive 2" by tag, or an all_reduce over pp or axes together; `waits`: for these earlier ones.
struct Line {
    Opcode what;
    int64_t tag = 0;
    std::vector<int> waits = {};
    int queue = 1;
    const char* axis = "pp";
};

Plan two_classes(const Mesh& mesh, const std::vector<Line>& first, const std::vector<Line>& second) {
    Plan plan;
    plan.mesh = mesh;
    for (int stage = 0; stage < 2; ++stage) {
        RankClass& c = plan.classes.emplace_back();
        c.stage = stage;
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
            if (mesh.member(rank, 0) == stage) c.ranks.push_back(rank);
        c.scratch_bytes = 64;
        c.buffers.push_back({Arena::scratch, 0, 64, none, BufferUse::activation, 0, 100});
        for (const Line& line : stage == 0 ? first : second) {
            Instruction& i = c.stream.emplace_back();
            i.opcode = line.what;
            i.queue = line.queue;
            i.axis = plan.mesh.over(line.axis).value();
            if (is_message(line.what)) i.peer = 1 - stage;
            i.tag = line.tag;
            i.waits = line.waits;
            i.operands.assign(is_message(line.what) ? 1 : 2, {0, 0, {DType::f32, {16}}, none});
        }
    }
    return plan;
}

Plan two_ranks(const std::vector<Line>& first, const std::vector<Line>& second) {
    return two_classes(Mesh({{"pp", 2}}), first, second);
}

constexpr Opcode send = Opcode::send, receive = Opcode::receive, all_reduce = Opcode::all_reduce;

Network with(C::Send semantics, C::Lanes lanes, bool queued) {
    C contract;
    contract.send = semantics;
    contract.lanes = lanes;
    contract.queued = queued;
    return {{"pp", contract}};
}

constexpr C::Lanes apart = C::Lanes::peer_and_direction, together = C::Lanes::communicator;

}  // namespace

TEST_CASE("progress: a receive holds up what the same thread issues later") {
    // Each rank's send stands behind a receive that waits for the other's send. Lanes do not help.
    const Plan plan = two_ranks({{receive, 2}, {send, 1}}, {{receive, 1}, {send, 2}});
    CHECK_THROWS_WITH(check_deadlock(plan, with(C::Send::rendezvous, apart, false)),
                      Contains("never ends") && Contains("receive over pp") && Contains("which waits for") &&
                          Contains("axis pp: rendezvous sends") && Contains("[transport.axis]"));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::rendezvous, apart, true)));
    CHECK_THROWS(check_deadlock(plan, with(C::Send::rendezvous, together, true)));
}

TEST_CASE("progress: a collective holds up what the same thread issues later") {
    const Plan plan = two_ranks({{all_reduce}, {send, 1}}, {{receive, 1}, {all_reduce}});
    CHECK_THROWS_WITH(check_deadlock(plan, with(C::Send::rendezvous, apart, false)),
                      Contains("never ends") && Contains("all_reduce"));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::rendezvous, apart, true)));
}

TEST_CASE("progress: kernels of two communicators may run one after the other on a GPU") {
    // Both have the ranks of both classes: in other orders they would wait for each other.
    const Line both{all_reduce, 0, {}, 2, "pp+dp"}, stages{all_reduce};
    const Mesh mesh({{"pp", 2}, {"dp", 2}});
    const Network queued = with(C::Send::grouped, together, true);
    CHECK_NOTHROW(check_deadlock(two_classes(mesh, {both, stages}, {both, stages}), queued));
    CHECK_THROWS_WITH(check_deadlock(two_classes(mesh, {both, stages}, {stages, both}), queued),
                      Contains("never ends") && Contains("pp+dp"));
    CHECK_THROWS_WITH(check_deadlock(two_classes(mesh, {both, {send, 1}}, {{receive, 1}, both}), queued),
                      Contains("never ends") && Contains("pp+dp"));
    CHECK_NOTHROW(check_deadlock(two_classes(mesh, {{send, 1}, both}, {{receive, 1}, both}), queued));
}

TEST_CASE("progress: a send holds up nothing but its lane and who waits for it") {
    const std::vector<Line> sends(40, {send, 1}), receives(40, {receive, 1});
    std::vector<Line> first = sends, second = receives;
    first.push_back({receive, 2});
    second.insert(second.begin(), {send, 2});
    CHECK_NOTHROW(check_deadlock(two_ranks(first, second), with(C::Send::rendezvous, apart, false)));
    // A receive that is to be written where the unmet send is read from.
    const Plan waits = two_ranks({{send, 1}, {receive, 2, {0}, 2}}, {{send, 2}, {receive, 1, {0}, 2}});
    CHECK_THROWS_WITH(check_deadlock(waits, with(C::Send::rendezvous, apart, false)), Contains("never ends"));
}

TEST_CASE("progress: nothing in a group is done before its end") {
    // Sent on in the group that receives it: the wait is never over.
    const Plan plan = two_ranks({{receive, 1}, {send, 2, {0}, 2}}, {{send, 1}, {receive, 2}});
    for (bool queued : {false, true})
        CHECK_THROWS_WITH(check_deadlock(plan, with(C::Send::grouped, together, queued)),
                          Contains("never ends") && Contains("receive over pp"));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::rendezvous, apart, false)));
    const Plan exchange = two_ranks({{receive, 1}, {send, 2}}, {{send, 1}, {receive, 2}});
    for (bool queued : {false, true}) CHECK_NOTHROW(check_deadlock(exchange, with(C::Send::grouped, together, queued)));
}

TEST_CASE("tables: a collective made of messages does not begin among the plan's unmet ones") {
    ChunkTable table = ring_table(2);
    table.name = "mine";
    table.origin = {"", "mine.lua", 4, 0};
    table.asked = {"", "job.toml", 7, 0};
    const auto refusal = [&](const std::vector<Line>& first, const std::vector<Line>& second) -> std::string {
        const Plan plan = two_ranks(first, second);
        check_deadlock(plan, with(C::Send::rendezvous, apart, false));  // the transport's own collective runs
        try {
            check_collective_tables(plan, {{"pp", {table}}}, {});
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::string unmet = refusal({{send, 1}, {all_reduce}}, {{all_reduce}, {receive, 1}});
    CHECK_THAT(unmet, Contains("job.toml:7") && Contains("collective mine") && Contains("all_reduce over pp") &&
                          Contains("send") && Contains("remove pp from [collectives]"));
    CHECK(refusal({{all_reduce}, {receive, 1}}, {{send, 1}, {all_reduce}}) != "");
    CHECK(refusal({{send, 1}, {all_reduce}}, {{receive, 1}, {all_reduce}}) == "");
    CHECK(refusal({{all_reduce}, {send, 1}}, {{all_reduce}, {receive, 1}}) == "");
    // The second collective, with as many messages, but not the same ones met.
    CHECK(refusal({{send, 1}, {all_reduce}, {send, 2}, {all_reduce}},
                  {{receive, 1}, {all_reduce}, {all_reduce}, {receive, 2}}) != "");
    const Plan plan = two_ranks({{send, 1}, {all_reduce}}, {{all_reduce}, {receive, 1}});
    CHECK_NOTHROW(check_collective_tables(plan, {}, {}));
    ChunkTable other = table;  // with messages the other way alone
    std::erase_if(other.moves, [](const ChunkMove& move) { return move.from == 0; });
    CHECK_NOTHROW(check_collective_tables(plan, {{"pp", {other}}}, {}));
    C tags;  // tell the one from the other
    tags.matching = C::Matching::tag;
    CHECK_NOTHROW(check_collective_tables(plan, {{"pp", {table}}}, {{"pp", tags}}));
}

TEST_CASE("contents: a group may not send from where it receives") {
    Model m = network({0, 1}, false);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    const Schedule schedule = hand_1f1b(2, 4);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts = with(C::Send::grouped, together, true);
    Plan plan = compile(m.program, Mesh({{"pp", 2}}).with_microbatches(4), options).plan;
    int broken = 0;
    for (RankClass& c : plan.classes)
        for (size_t i = 1; i < c.stream.size(); ++i) {
            const Instruction& before = c.stream[i - 1];
            Instruction& in = c.stream[i];
            if (before.opcode != send || in.opcode != receive) continue;
            const Operand was = in.operands[0];
            in.operands[0].buffer = before.operands[0].buffer;
            in.operands[0].offset = before.operands[0].offset;
            CHECK_THROWS_WITH(check_values(plan, options.contracts),
                              Contains("is in one message group with instruction " + std::to_string(i - 1)));
            in.operands[0] = was;
            ++broken;
        }
    CHECK(broken > 0);
    CHECK_NOTHROW(check_values(plan, options.contracts));
}

TEST_CASE("groups: equal sizes do not make two collectives the same") {
    Model m = network({0, 1}, false);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    const Schedule schedule = hand_1f1b(2, 2);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts = with(C::Send::rendezvous, apart, false);
    Plan plan = compile(m.program, Mesh({{"pp", 2}}).with_microbatches(2), options).plan;
    std::vector<Instruction*> sums;
    for (Instruction& i : plan.classes[1].stream)
        if (i.opcode == Opcode::all_reduce) sums.push_back(&i);
    REQUIRE(!sums.empty());
    SECTION("two of them, swapped") {
        if (sums.size() < 2) {  // a second one, of another value, on both ranks
            for (RankClass& c : plan.classes) {
                const auto first = std::find_if(c.stream.begin(), c.stream.end(),
                                                [](const Instruction& i) { return i.opcode == Opcode::all_reduce; });
                Instruction other = *first;
                other.op += 1;
                c.stream.push_back(other);
            }
            sums.clear();
            for (Instruction& i : plan.classes[1].stream)
                if (i.opcode == Opcode::all_reduce) sums.push_back(&i);
        }
        CHECK_NOTHROW(check_collectives(plan));
        REQUIRE(sums[0]->operands[0].type == sums[1]->operands[0].type);
        std::swap(*sums[0], *sums[1]);
        CHECK_THROWS_WITH(check_collectives(plan), Contains("members of axis pp disagree on collective number 0"));
    }
    SECTION("the members of a joined one, swapped") {
        const ValueId a = sums[0]->operands[0].value, b = sums[0]->operands[1].value;
        for (RankClass& c : plan.classes)
            for (Instruction& i : c.stream)
                if (i.opcode == Opcode::all_reduce) {
                    const Operand in = i.operands[0], out = i.operands[1];
                    i.operands.push_back({in.buffer, in.offset, in.type, a});
                    i.operands.push_back({out.buffer, out.offset, out.type, a});
                    i.operands.push_back({in.buffer, in.offset + 4, in.type, b});
                    i.operands.push_back({out.buffer, out.offset + 4, out.type, b});
                }
        CHECK_NOTHROW(check_collectives(plan));
        std::swap(sums[0]->operands[3].value, sums[0]->operands[5].value);
        CHECK_THROWS_WITH(check_collectives(plan), Contains("disagree on collective number 0"));
    }
}
