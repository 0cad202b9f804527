// Plans broken on purpose are refused, each with the place named.
#include "plan/check/check.h"

#include <catch2/catch.hpp>

#include <functional>

#include "layout_models.h"
#include "plan/print.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

/// A sound plan with buckets, two queues and two micro-batches.
Plan sound_plan() {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    m.program.bucket("dp", 1 << 20, {});
    return compile(m.program, Mesh({{"dp", 2}, {"tp", 2}}).with_microbatches(2)).plan;
}

/// Index of the n-th instruction that does this.
int find(const Plan& plan, Opcode what, int n = 0) {
    const auto& stream = plan.classes[0].stream;
    for (size_t i = 0; i < stream.size(); ++i)
        if (stream[i].opcode == what && n-- == 0) return static_cast<int>(i);
    FAIL("the plan has no such instruction");
    return none;
}

Instruction& at(Plan& plan, int index) { return plan.classes[0].stream[static_cast<size_t>(index)]; }

/// Takes an instruction out; waits that named it are dropped, later ones renumbered.
void erase(Plan& plan, int index) {
    auto& stream = plan.classes[0].stream;
    stream.erase(stream.begin() + index);
    for (Instruction& i : stream) {
        std::erase(i.waits, index);
        for (int& wait : i.waits) wait -= wait > index;
    }
    for (Buffer& b : plan.classes[0].buffers) b.last = 1 << 20;
    for (Buffer& b : plan.classes[0].buffers) b.first = std::min(b.first, 0);
}

/// Two pipeline ranks that exchange two tensors, as hand-made streams: each line "send 0" or "recv 1" with a tag.
struct Line {
    Opcode what;
    int64_t tag;
};

Plan two_stages(const std::vector<Line>& first, const std::vector<Line>& second) {
    Plan plan;
    plan.mesh = Mesh({{"pp", 2}, {"dp", 2}});
    for (int stage = 0; stage < 2; ++stage) {
        RankClass& c = plan.classes.emplace_back();
        c.stage = stage;
        c.ranks = stage == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3};
        c.scratch_bytes = 64;
        c.buffers.push_back({Arena::scratch, 0, 64, none, BufferUse::activation, 0, 100});
        for (const Line& line : stage == 0 ? first : second) {
            Instruction& i = c.stream.emplace_back();
            i.opcode = line.what;
            i.queue = 1;
            i.axis = 0;
            i.peer = 1 - stage;
            i.tag = line.tag;
            i.operands = {{0, 0, {DType::f32, {16}}, none}};
        }
    }
    return plan;
}

constexpr Opcode send = Opcode::send, receive = Opcode::receive;

Network with(TransportContract::Send semantics, int slots, TransportContract::Lanes lanes) {
    TransportContract contract;
    contract.send = semantics;
    contract.slots = slots;
    contract.lanes = lanes;
    return {{"pp", contract}};
}

}  // namespace

TEST_CASE("a sound plan passes") { CHECK_NOTHROW(check(sound_plan(), {})); }

TEST_CASE("operands must fit kernels, buffers and arenas") {
    Plan plan = sound_plan();
    SECTION("shape") {
        at(plan, 0).operands[0].type.shape[0] += 1;
        CHECK_THROWS_WITH(check(plan, {}), Contains("instruction 0: matmul") && Contains("its kernel expects") &&
                                               Contains("model.lua:"));
    }
    SECTION("outside the buffer") {
        at(plan, 1).operands[1].offset = 1 << 20;
        CHECK_THROWS_WITH(check(plan, {}), Contains("instruction 1: matmul") && Contains("is out of bounds of buffer"));
    }
    SECTION("buffer outside the arena") {
        plan.classes[0].scratch_bytes -= 64;
        CHECK_THROWS_WITH(check(plan, {}), Contains("past the scratch arena"));
    }
    SECTION("unaligned buffer") {
        plan.classes[0].buffers.back().offset += 4;
        CHECK_THROWS_WITH(check(plan, {}), Contains("not a multiple of 64"));
    }
    SECTION("lifetime") {
        plan.classes[0].buffers[static_cast<size_t>(at(plan, 1).operands[1].buffer)].last = 1;
        CHECK_THROWS_WITH(check(plan, {}), Contains("outside its lifetime"));
    }
    SECTION("message sizes") {
        Instruction& message = at(plan, find(plan, Opcode::all_reduce));
        message.opcode = Opcode::all_gather;
        CHECK_THROWS_WITH(check(plan, {}), Contains("all_gather") && Contains("over tp") &&
                                               Contains("over 2 members the output must have"));
    }
    SECTION("the transport's dtypes") {
        TransportContract only_bf16;
        only_bf16.dtypes = {DType::bf16};
        CHECK_THROWS_WITH(check(plan, {{"tp", only_bf16}}), Contains("the transport of axis tp does not reduce f32"));
    }
    SECTION("a transport that cannot reduce in place") {
        TransportContract apart;
        apart.in_place = false;
        CHECK_THROWS_WITH(check(plan, {{"tp", apart}}), Contains("is in place"));
    }
}

TEST_CASE("contents: a place used for two values at once is found") {
    Plan plan = sound_plan();
    // The second activation, reduced and added to in place, is put over the first, which the backward pass still reads.
    const Operand first = at(plan, 0).operands.back(), second = at(plan, 1).operands.back();
    plan.classes[0].buffers[static_cast<size_t>(second.buffer)].offset =
        plan.classes[0].buffers[static_cast<size_t>(first.buffer)].offset;
    CHECK_THROWS_WITH(check(plan, {}),
                      Contains("gelu_grad") && Contains("but its bytes hold") && Contains("written by instruction 3"));
}

TEST_CASE("contents: every instruction left out is missed") {
    const Plan good = sound_plan();
    for (int i = 0; i < static_cast<int>(good.classes[0].stream.size()); ++i) {
        Plan plan = good;
        erase(plan, i);
        INFO("without " << describe(good, good.classes[0], i));
        CHECK_THROWS_AS(check_values(plan), Error);
    }
}

TEST_CASE("contents: every instruction done twice is noticed") {
    const Plan good = sound_plan();
    for (int i = 0; i < static_cast<int>(good.classes[0].stream.size()); ++i) {
        Plan plan = good;
        if (at(plan, i).opcode == Opcode::copy) continue;  // the same bytes again do no harm
        plan.classes[0].stream.push_back(at(plan, i));
        plan.classes[0].stream.back().waits.clear();
        INFO("twice " << describe(good, good.classes[0], i));
        CHECK_THROWS_AS(check_values(plan), Error);
    }
}

TEST_CASE("contents: the wrong micro-batch is found") {
    Plan plan = sound_plan();
    int product_of_1 = 0;
    while (at(plan, product_of_1).fragment.micro != 1) ++product_of_1;
    // The next one reads what the first micro-batch left, where it had a place of its own.
    const Instruction first = at(plan, 0);
    Buffer& place = plan.classes[0].buffers[static_cast<size_t>(first.operands[3].buffer)];
    place.offset = plan.classes[0].scratch_bytes;
    place.last = 1 << 20;
    plan.classes[0].scratch_bytes += 64;
    at(plan, product_of_1 + 1).operands[0].buffer = first.operands[3].buffer;
    CHECK_THROWS_WITH(check_values(plan), Contains("of micro-batch 1, but its bytes hold micro-batch 0"));
}

TEST_CASE("order: every wait is needed") {
    const Plan good = sound_plan();
    int waits = 0;
    for (size_t i = 0; i < good.classes[0].stream.size(); ++i)
        for (size_t w = 0; w < good.classes[0].stream[i].waits.size(); ++w) {
            Plan plan = good;
            auto& list = plan.classes[0].stream[i].waits;
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(w));
            INFO("without wait " << w << " of " << describe(good, good.classes[0], static_cast<int>(i)));
            CHECK_THROWS_WITH(check(plan, {}), Contains("a wait is missing"));
            ++waits;
        }
    CHECK(waits > 4);
}

TEST_CASE("order: a wait for what comes later is refused") {
    Plan plan = sound_plan();
    at(plan, 3).waits = {5};
    CHECK_THROWS_WITH(check(plan, {}), Contains("waits for instruction 5, which does not come before it"));
}

TEST_CASE("what a step must leave behind is there") {
    Plan plan = sound_plan();
    plan.program.updates[0].value = plan.program.updates[1].value;
    CHECK_THROWS_WITH(check(plan, {}), Contains("after the step the buffer of") && Contains("instead of"));
}

TEST_CASE("groups: members must run the same collectives in the same order") {
    Plan plan = two_stages({}, {});
    for (RankClass& c : plan.classes)
        for (int n : {4, 8}) {
            Instruction& i = c.stream.emplace_back();
            i.opcode = Opcode::all_reduce;
            i.queue = 1;
            i.axis = 0;
            i.operands.assign(2, {0, 0, {DType::f32, {n}}, none});
        }
    CHECK_NOTHROW(check_collectives(plan));
    SECTION("order") {
        std::swap(plan.classes[1].stream[0], plan.classes[1].stream[1]);
        CHECK_THROWS_WITH(check_collectives(plan),
                          Contains("disagree on collective number 0") && Contains("f32[4]") && Contains("f32[8]"));
    }
    SECTION("count") {
        plan.classes[1].stream.pop_back();
        CHECK_THROWS_WITH(check_collectives(plan),
                          Contains("class 0 (ranks 0..1), instruction 1") && Contains("has no partner in class 1"));
    }
    SECTION("a collective that only some reach") {
        plan.classes[1].stream.pop_back();
        CHECK_THROWS_WITH(check_deadlock(plan, {}), Contains("never ends") && Contains("class 0"));
    }
    SECTION("a rank without a stream") {
        plan.classes[1].ranks.pop_back();
        CHECK_THROWS_WITH(check_collectives(plan), Contains("rank 3 has no stream"));
    }
}

TEST_CASE("progress: both sides sending first needs a buffer") {
    const Plan plan = two_stages({{send, 1}, {receive, 2}}, {{send, 2}, {receive, 1}});
    using C = TransportContract;
    CHECK_THROWS_WITH(check_deadlock(plan, with(C::Send::rendezvous, 0, C::Lanes::communicator)),
                      Contains("never ends") && Contains("class 0") && Contains("class 1") && Contains("send over pp"));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::buffered, 1, C::Lanes::communicator)));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::grouped, 0, C::Lanes::communicator)));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::rendezvous, 0, C::Lanes::peer_and_direction)));
    CHECK_THROWS(check_deadlock(plan, with(C::Send::rendezvous, 0, C::Lanes::peer)));
}

TEST_CASE("progress: slots are counted") {
    const Plan plan = two_stages({{send, 1}, {send, 2}, {receive, 3}}, {{send, 3}, {receive, 1}, {receive, 2}});
    using C = TransportContract;
    CHECK_THROWS(check_deadlock(plan, with(C::Send::rendezvous, 0, C::Lanes::communicator)));
    CHECK_NOTHROW(check_deadlock(plan, with(C::Send::buffered, 1, C::Lanes::communicator)));
    const Plan more = two_stages({{send, 1}, {send, 2}, {receive, 3}, {receive, 4}},
                                 {{send, 3}, {send, 4}, {receive, 1}, {receive, 2}});
    CHECK_THROWS(check_deadlock(more, with(C::Send::buffered, 1, C::Lanes::communicator)));
    CHECK_NOTHROW(check_deadlock(more, with(C::Send::buffered, 2, C::Lanes::communicator)));
}

TEST_CASE("progress: messages pair by order and tag") {
    CHECK_THROWS_WITH(check_deadlock(two_stages({{send, 1}}, {{receive, 2}}), {}),
                      Contains("tag 1") && Contains("tag 2"));
    CHECK_THROWS_WITH(check_deadlock(two_stages({{send, 1}}, {}), {}), Contains("never ends"));
    CHECK_THROWS_WITH(check_deadlock(two_stages({{send, 1}}, {}), with(TransportContract::Send::buffered, 1, {})),
                      Contains("is sent but never received"));
    CHECK_THROWS_WITH(check_deadlock(two_stages({}, {{receive, 1}}), {}), Contains("receive over pp"));
    Plan sizes = two_stages({{send, 1}}, {{receive, 1}});
    sizes.classes[1].stream[0].operands[0].type.shape = {8};
    CHECK_THROWS_WITH(check_deadlock(sizes, {}), Contains("f32[16]") && Contains("f32[8]"));
}

TEST_CASE("memory over the limit says by how much and what is largest") {
    Plan plan = sound_plan();
    const int64_t needed = plan.classes[0].persistent_bytes + plan.classes[0].scratch_bytes;
    CHECK_NOTHROW(check(plan, {}, needed));
    CHECK_THROWS_WITH(check(plan, {}, needed - 64), Contains("64 B too much; largest: gradient"));
    plan.classes[0].persistent_bytes = 93 * (int64_t{1} << 30);
    CHECK_THROWS_WITH(check(plan, {}, 80 * (int64_t{1} << 30)), Contains("device.memory_gib is 80: 13.0 GiB too much"));
}

TEST_CASE("the fingerprint sees every part that ranks must agree on") {
    const Plan good = sound_plan();
    CHECK(fingerprint(good) == good.fingerprint);
    CHECK(good.fingerprint.size() == 64);
    CHECK(sound_plan().fingerprint == good.fingerprint);
    const std::vector<std::function<void(Plan&)>> changes{
        [](Plan& p) { p.classes[0].kernels[0].attributes.set("x", true); },
        [](Plan& p) { p.classes[0].buffers[3].offset += 64; },
        [](Plan& p) { p.classes[0].stream[2].waits.clear(); },
        [](Plan& p) { p.classes[0].stream[4].operands[0].offset += 4; },
        [](Plan& p) { p.classes[0].stream[2].reduce = ReduceOp::max; },
        [](Plan& p) { std::swap(p.classes[0].stream[0], p.classes[0].stream[1]); },
        [](Plan& p) { p.classes[0].scratch_bytes += 64; },
        [](Plan& p) { p.threads_per_rank = 2; },
        [](Plan& p) {
            p.mesh = Mesh({{"tp", 2}, {"dp", 2}});
        },
    };
    for (size_t i = 0; i < changes.size(); ++i) {
        Plan other = good;
        changes[i](other);
        INFO("change " << i);
        CHECK(fingerprint(other) != good.fingerprint);
    }
}

TEST_CASE("a kernel's workspace is alive, apart from its operands and of no meaning afterwards") {
    Model m = mlp(8, 4, 12, true, true);
    CompileOptions options;
    int64_t asked = 0;
    options.workspace = [&](const KernelSpec& spec) { return spec.op == "square" ? ++asked, 100 : 0; };
    const Plan bare = compile(m.program, Mesh()).plan;
    Plan plan = compile(m.program, Mesh(), options).plan;
    RankClass& c = plan.classes[0];
    CHECK(asked == 1);
    CHECK(c.stream.size() == bare.classes[0].stream.size());
    CHECK(c.scratch_bytes >= bare.classes[0].scratch_bytes);
    CHECK(plan.fingerprint != bare.fingerprint);
    const auto user = std::find_if(c.stream.begin(), c.stream.end(), [](auto& i) { return i.workspace != none; });
    REQUIRE(user != c.stream.end());
    Buffer& own = c.buffers[static_cast<size_t>(user->workspace)];
    CHECK(own.bytes == 100);
    CHECK(own.first == own.last);
    CHECK(own.first == user - c.stream.begin());
    CHECK_THAT(print(plan), Contains("workspace b" + std::to_string(user->workspace)));
    SECTION("over an operand") {
        own.offset = c.buffers[static_cast<size_t>(user->operands[1].buffer)].offset;
        c.scratch_bytes += 128;
        CHECK_THROWS_WITH(check(plan, {}), Contains("square") && Contains("overlaps its operand"));
    }
    SECTION("not alive") {
        own.first = own.last = 0;
        CHECK_THROWS_WITH(check(plan, {}), Contains("is used outside its lifetime"));
    }
    SECTION("not aligned") {
        own.offset = (c.scratch_bytes + 63) / 64 * 64;
        own.offset += own.offset % scratch_alignment == 0 ? 64 : 0;
        c.scratch_bytes = own.offset + own.bytes;
        CHECK_THROWS_WITH(check(plan, {}), Contains("square") && Contains("is not a multiple of 256"));
    }
    SECTION("its bytes read later") {
        Instruction& next = *(user + 1);
        const TensorType type = next.operands[0].type;
        const Buffer copy = own;
        c.buffers.push_back(copy);
        c.buffers.back().bytes = type.bytes();
        c.buffers.back().last = 1 << 20;
        c.scratch_bytes += type.bytes();
        next.operands[0] = {static_cast<int>(c.buffers.size()) - 1, 0, type, next.operands[0].value};
        CHECK_THROWS_WITH(check(plan, {}), Contains("its bytes hold nothing it knows"));
    }
}
