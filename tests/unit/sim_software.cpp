// A plan as other software would have made it.
#include "sim/software/profile.h"

#include <catch2/catch.hpp>
#include <functional>

#include "compile/pipeline.h"
#include "layout_models.h"
#include "orrery/p2p.h"
#include "plan/access.h"
#include "plan/print.h"
#include "sim/simulate.h"
#include "sim/software/held.h"
#include "sim/software/passes.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const Mesh mesh({{"dp", 2}, {"tp", 4}});
const AxisId dp = 0, tp = 1;

Network network_of(const Mesh& of) {
    Network all;
    for (const Axis& axis : of.axes()) all[axis.name] = accelerator_contract();
    return all;
}

/// Two layers under tp with a split sequence, so that gradients of norms are summed over tp once a step.
/// `again`: the backward pass gathers the inputs of products again.
Plan made(int64_t micros, bool again = false) {
    Model m = deep(2, 4 * micros, 32);
    m.split_names({{"mlp", "tp"}, {"batch", "dp"}, {"seq", "tp"}});
    for (const Op& op : m.program.ops)
        if (op.kind == "rmsnorm" && again) m.program.use(op.outputs[0], "tp", Placement::replicated(), {}, Keep::part);
    const Mesh all = mesh.with_microbatches(micros);
    CompileOptions options;
    options.contracts = network_of(mesh);
    Persistent persistent;
    return plan_of(distribute(m.program, all), all, persistent, options);
}

/// What is on its way to a kernel, and places used again.
Plan small() {
    Plan plan;
    plan.mesh = Mesh({{"dp", 2}});
    RankClass c;
    c.ranks = {0, 1};
    c.buffers.resize(8);
    const auto operand = [](int buffer, int64_t size, DType type) { return Operand{buffer, 0, {type, {size}}, none}; };
    const auto kernel = [&](int from, int to, std::vector<int> waits) {
        Instruction i;
        i.kernel = static_cast<int>(c.kernels.size());
        i.operands = {operand(from, 1 << 20, DType::bf16), operand(to, 1 << 20, DType::bf16)};
        i.waits = std::move(waits);
        c.kernels.push_back({"relu", {}, {i.operands[0].type}, {i.operands[1].type}});
        c.stream.push_back(i);
    };
    const auto collective = [&](Opcode opcode, int from, int to, std::vector<int> waits) {
        const bool gathers = opcode == Opcode::all_gather;
        const DType type = gathers ? DType::bf16 : DType::f32;
        Instruction i;
        i.opcode = opcode, i.queue = 1, i.axis = 0;
        i.operands = {operand(from, gathers ? 1 << 19 : 1 << 20, type), operand(to, gathers ? 1 << 20 : 1 << 19, type)};
        i.waits = std::move(waits);
        c.stream.push_back(i);
    };
    collective(Opcode::all_gather, 0, 1, {});       // 0
    kernel(1, 2, {0});                              // 1
    collective(Opcode::all_gather, 3, 4, {1});      // 2: in a place that 1 has read
    kernel(2, 5, {2});                              // 3: in a place that 2 has read
    collective(Opcode::reduce_scatter, 5, 6, {3});  // 4
    kernel(4, 7, {4});                              // 5: reads what 2 has brought
    plan.classes = {c};
    return plan;
}

const RankClass& only(const Plan& plan) { return plan.classes[0]; }

bool over(const Instruction& i, AxisId axis) { return is_collective(i.opcode) && i.axis == axis; }

std::vector<OpId> collectives(const RankClass& c, AxisId axis) {
    std::vector<OpId> all;
    for (const Instruction& i : c.stream)
        if (over(i, axis)) all.push_back(i.op);
    return all;
}

int last_product(const RankClass& c) {
    int last = none;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (c.stream[i].fragment.micro >= 0 && multiplies(c, c.stream[i])) last = static_cast<int>(i);
    return last;
}

class Bytes final : public Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t) override { return of(spec.outputs[0].bytes()); }
    Demand copy(int64_t bytes, int64_t) override { return of(bytes); }
    Demand collective(Opcode, AxisId, int64_t bytes, const std::vector<int64_t>&,
                      const std::vector<int64_t>&) override {
        return of(bytes);
    }
    Demand message(AxisId, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override { return of(bytes); }
    double capacity(ResourceId) const override { return 1; }

private:
    static Demand of(int64_t bytes) { return {.fixed_s = static_cast<double>(bytes) * 1e-6, .loads = {}, .how = ""}; }
};

double seconds(const Plan& plan) {
    Bytes prices;
    return simulate(plan, network_of(plan.mesh), prices).step_s;
}

}  // namespace

TEST_CASE("software profile: none leave the plan as it is, but nothing may run it") {
    const Plan plan = made(2), same = with_profile(plan, {});
    CHECK(print(same) == print(plan));
    CHECK(same.fingerprint == for_prices_alone);
}

TEST_CASE("software profile: an allocator that keeps memory waits for what is read alone") {
    SoftwareProfile profile;
    profile.keeps_memory = true;
    const Plan plan = with_profile(small(), profile);
    const auto& stream = only(plan).stream;
    CHECK(stream[1].waits == std::vector<int>{0});
    CHECK(stream[2].waits == std::vector<int>{1});
    CHECK(stream[3].waits.empty());
    CHECK(stream[4].waits == std::vector<int>{3});
    CHECK(stream[5].waits == std::vector<int>{2});
    CHECK(seconds(plan) < seconds(small()));
    CHECK(seconds(with_profile(made(2), profile)) <= seconds(made(2)));
}

TEST_CASE("software profile: a forward's send is awaited at once, or after the backward pass that follows") {
    using Kind = Fragment::Kind;
    RankClass c;
    const auto add = [&](Opcode opcode, Kind kind, int64_t micro) {
        Instruction i;
        i.opcode = opcode, i.fragment = {kind, micro, 0};
        if (is_message(opcode)) i.axis = 0, i.queue = 1;
        c.stream.push_back(i);
    };
    add(Opcode::kernel, Kind::forward, 1);
    add(Opcode::send, Kind::forward, 1);
    add(Opcode::kernel, Kind::backward, 0);
    add(Opcode::receive, Kind::forward, 2);
    add(Opcode::kernel, Kind::forward, 2);
    add(Opcode::send, Kind::forward, 2);
    add(Opcode::kernel, Kind::forward, 3);
    const auto waits = [&](bool in_pairs) {
        RankClass made = c;
        wait_for_messages(made, in_pairs);
        std::vector<std::vector<int>> all;
        for (const int kernel : {2, 4, 6}) all.push_back(made.stream[static_cast<size_t>(kernel)].waits);
        return all;
    };
    CHECK(waits(false) == std::vector<std::vector<int>>{{1}, {3}, {5}});
    CHECK(waits(true) == std::vector<std::vector<int>>{{}, {1}, {5}});
}

TEST_CASE("software profile: types of params and gradients, casts") {
    SoftwareProfile profile;
    profile.gathers_f32 = true;
    profile.reduces_bf16 = true;
    const Plan plan = with_profile(small(), profile);
    const auto& stream = only(plan).stream;
    REQUIRE(stream.size() == 8);
    CHECK(stream[0].operands[1].type.bytes() == 4 << 20);
    REQUIRE(stream[1].opcode == Opcode::copy);
    CHECK(stream[1].operands[0].type.bytes() == 3 << 20);  // reads 4 and writes 2, as a copy of 3 does
    CHECK(stream[1].waits == std::vector<int>{0});
    CHECK(stream[2].waits.empty());
    CHECK(stream[5].operands[0].type.bytes() == 2 << 20);
    CHECK(stream[6].opcode == Opcode::copy);
    CHECK(stream[6].waits == std::vector<int>{5});
    SoftwareProfile whole;
    whole.all_reduces = true;
    const Plan summed = with_profile(small(), whole);
    CHECK(only(summed).stream[4].opcode == Opcode::all_reduce);
    CHECK(only(summed).stream[4].operands[1].type.bytes() == 4 << 20);
}

TEST_CASE("software profile: gradients of micro-batches are added by launches of their own") {
    SoftwareProfile profile;
    profile.adds_apart = true;
    const Plan plan = made(2), apart = with_profile(plan, profile);
    for (size_t k = 0; k < plan.classes.size(); ++k) {
        int64_t gradients = 0, added = 0;
        for (const Instruction& i : plan.classes[k].stream)
            if (i.opcode == Opcode::kernel && i.fragment.micro >= 0 && multiplies(plan.classes[k], i) &&
                plan.classes[k].kernels[static_cast<size_t>(i.kernel)].op.starts_with("matmul_dw"))
                gradients += i.operands.back().type.count();
        for (const Instruction& i : apart.classes[k].stream)
            if (i.opcode == Opcode::copy) added += i.operands[0].type.bytes();
        for (const Instruction& i : plan.classes[k].stream)
            if (i.opcode == Opcode::copy) added -= i.operands[0].type.bytes();
        CHECK(gradients > 0);
        CHECK(added == 6 * gradients);
    }
    CHECK(seconds(apart) > seconds(plan));
}

TEST_CASE("software profile: parts of params and gradients are copied by a launch for each rank") {
    SoftwareProfile profile;
    profile.copies_parts = 4 << 20;
    const Plan plan = with_profile(small(), profile);
    const auto& stream = only(plan).stream;
    REQUIRE(stream.size() == 6 + 2 + 2 + 4);
    for (const size_t copy : {1, 2}) CHECK(stream[copy].operands[0].type.bytes() == 3 << 20);  // three of 2 MiB, halved
    CHECK(stream[1].waits == std::vector<int>{0});
    CHECK(stream[2].waits.empty());
    CHECK(stream[3].waits == std::vector<int>{0});
    for (const size_t copy : {8, 9, 10, 11}) CHECK(stream[copy].operands[0].type.bytes() == 2 << 20);
    CHECK(stream[12].opcode == Opcode::reduce_scatter);
    CHECK(stream[12].waits == std::vector<int>{11});
    profile.copies_parts = 8 << 20;  // more than the gradients are
    CHECK(only(with_profile(small(), profile)).stream.size() == 6 + 2 + 2);
}

TEST_CASE("software profile: a block that is recomputed runs its last GEMM and the sum of its output again") {
    Program program;
    program.ops.resize(2);
    program.ops[0].scope = "layers.0.mlp.down", program.ops[1].scope = "layers.0.attention";
    RankClass c;
    const auto add = [&](const std::string& op, int from, int to, Fragment::Kind kind) {
        Instruction i;
        i.kernel = static_cast<int>(c.kernels.size()), i.op = op == "matmul" ? 0 : 1, i.fragment = {kind, 0, 0};
        i.operands = {Operand{from, 0, {DType::bf16, {4, 4}}, none}, Operand{to, 0, {DType::bf16, {4, 4}}, none}};
        c.kernels.push_back({op, {}, {i.operands[0].type}, {i.operands[1].type}});
        c.stream.push_back(i);
    };
    const auto sum = [&](AxisId axis) {
        Instruction i;
        i.opcode = Opcode::all_reduce, i.queue = 1, i.axis = axis, i.waits = {1};
        i.operands = {Operand{1, 0, {DType::bf16, {4, 4}}, none}, Operand{2, 0, {DType::bf16, {4, 4}}, none}};
        c.stream.push_back(i);
    };
    add("attention", 3, 0, Fragment::Kind::forward);
    add("matmul", 0, 1, Fragment::Kind::forward);
    sum(tp);
    sum(dp);
    add("attention", 3, 0, Fragment::Kind::backward);
    RankClass without = c;
    recompute_whole(c, program, {1, 0});
    REQUIRE(c.stream.size() == 7);
    CHECK(c.kernels[at(c.stream[4].kernel)].op == "matmul");
    CHECK(c.stream[4].fragment.kind == Fragment::Kind::backward);
    CHECK(c.stream[5].opcode == Opcode::all_reduce);
    CHECK(c.stream[5].axis == tp);
    CHECK(c.stream[5].waits == std::vector<int>{4});
    CHECK(c.stream[6].waits == std::vector<int>{5});
    without.stream.resize(4);  // nothing recomputed
    recompute_whole(without, program, {1, 0});
    CHECK(without.stream.size() == 4);
}

TEST_CASE("software profile: data parallelism and sums behind all fragments, in the order that they had") {
    const Plan plan = made(2);
    SoftwareProfile profile;
    profile.keeps_memory = profile.sums_late = profile.gradients_late = profile.params_late = true;
    const Plan late = with_profile(plan, profile);
    for (size_t k = 0; k < plan.classes.size(); ++k) {
        const RankClass &before = plan.classes[k], &after = late.classes[k];
        CHECK(after.stream.size() == before.stream.size());
        CHECK(collectives(after, dp) == collectives(before, dp));
        const int last = last_product(after);
        REQUIRE(last != none);
        int once = 0, early = 0;
        for (int i = 0; i < static_cast<int>(after.stream.size()); ++i) {
            const Instruction& one = after.stream[static_cast<size_t>(i)];
            for (const int wait : one.waits) REQUIRE(wait < i);
            if (one.fragment.micro >= 0 || (!over(one, dp) && !over(one, tp))) continue;
            CHECK(i > last);
            ++once;
            if (over(one, dp)) CHECK(std::find(one.waits.begin(), one.waits.end(), last) != one.waits.end());
        }
        for (int i = 0; i < last_product(before); ++i)
            early += before.stream[static_cast<size_t>(i)].fragment.micro < 0 &&
                     before.stream[static_cast<size_t>(i)].axis != none;
        CHECK(once >= 2);
        CHECK(early >= 1);  // there was something to move
    }
    CHECK(seconds(late) >= seconds(plan));
}

TEST_CASE("a plan tells whether the backward pass gathers over tp again, which takes less memory") {
    const Plan saved = made(2), again = made(2, true);
    CHECK(!run_of({}, saved).gathers_again);
    CHECK(run_of({}, again).gathers_again);
    SoftwareRun saves, gathers;
    saves.sequence = gathers.sequence = gathers.software.gathers_again = true;
    const auto held = [](const Plan& plan, const SoftwareRun& run) { return held_bytes(plan, only(plan), run); };
    CHECK(held(again, gathers) < held(saved, saves));
    CHECK(held(again, saves) > held(again, gathers));  // as the software does, not as the plan
    CHECK(held(saved, gathers) < held(saved, saves));
}

TEST_CASE("software memory: gradients by type, states split") {
    const Plan plan = made(2);
    SoftwareRun usual;
    usual.sequence = true;
    const auto held = [&](const std::function<void(SoftwareRun&)>& change) {
        SoftwareRun options = usual;
        change(options);
        return held_bytes(plan, only(plan), options);
    };
    int64_t params = 0, states = 0;
    for (const Operand& place : only(plan).places) {
        const Role role = plan.program.value(place.value).role;
        if (role == Role::param) params += place.type.count();  // nothing splits it over dp
        if (role == Role::param || role == Role::state) states += place.type.bytes();
    }
    REQUIRE(params > 0);
    using Gradients = SoftwareDefaults::HeldGradients;
    const int64_t f32 = held([](SoftwareRun&) {});
    CHECK(held([](SoftwareRun& o) { o.software.held_gradients = Gradients::sharded; }) == f32);  // nothing splits them
    const int64_t in_16 = held([](SoftwareRun& o) { o.software.held_gradients = Gradients::bits_16; });
    CHECK(f32 - in_16 == 2 * params);
    CHECK(held([](SoftwareRun& o) { o.reduce_bf16 = true; }) == in_16);
    CHECK(held([](SoftwareRun& o) { o.software.held_gradients = Gradients::f32_and_16_bits; }) - f32 == 2 * params);
    CHECK(f32 - held([](SoftwareRun& o) { o.zero = 1; }) == states / 2);

    std::string kinds;
    held_bytes(plan, only(plan), usual, &kinds);
    CHECK_THAT(kinds, Catch::Contains("params and states") && Catch::Contains("GiB"));
    // 8-bit copies replace what only gradients of weights read; autocast has f32 where all is recomputed.
    CHECK(held([](SoftwareRun& o) { o.eight_bit = true; }) != f32);
    CHECK(held([](SoftwareRun& o) { o.recomputes_blocks = o.software.f32_params = true; }) > f32);
}
