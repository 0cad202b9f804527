// What saves beside the steps copy: a plan for every mesh, and plans with planted mistakes, each refused.
#include "plan/snapshot.h"

#include <catch2/catch.hpp>

#include <functional>
#include <set>

#include "layout_models.h"
#include "plan/access.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

Plan plan_on(const Mesh& mesh, const std::function<void(Model&)>& mark) {
    Model m = mlp(8, 4, 12, true, true);
    mark(m);
    m.program.bucket("dp", 1 << 20, {});
    return compile(m.program, mesh).plan;
}

Plan sound_plan() {
    return plan_on(Mesh({{"dp", 2}, {"tp", 2}}).with_microbatches(2), [](Model& m) {
        m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    });
}

/// Of class 0: all are written.
CopiedValue& first_written(std::vector<SnapshotPlan>& snapshots) { return snapshots[0].values.front(); }
CopiedValue& last_written(std::vector<SnapshotPlan>& snapshots) { return snapshots[0].values.back(); }

std::string refusal(const Plan& plan, const std::vector<SnapshotPlan>& snapshots) {
    try {
        check_snapshots(plan, snapshots);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a snapshot has every param and state, and each has the time until the optimizer writes it", "[snapshot]") {
    const Plan plan = sound_plan();
    const std::vector<SnapshotPlan> snapshots = snapshots_of(plan);
    CHECK(refusal(plan, snapshots) == "");
    REQUIRE(snapshots.size() == plan.classes.size());
    const RankClass& c = plan.classes[0];
    int last_backward = 0;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (c.stream[i].op != none && plan.program.op(c.stream[i].op).phase == Phase::backward)
            last_backward = static_cast<int>(i);
    REQUIRE(last_backward > 10);
    std::set<ValueId> held;
    for (const Operand& place : c.places)
        if (const Role role = plan.program.value(place.value).role; role == Role::param || role == Role::state)
            held.insert(place.value);
    int64_t bytes = 0;
    for (const CopiedValue& value : snapshots[0].values) {
        CHECK(held.erase(value.value) == 1);
        CHECK(value.written > last_backward);
        bytes += value.bytes;
    }
    CHECK(held.empty());
    CHECK(snapshots[0].bytes >= bytes);
    CHECK(snapshots[0].bytes < bytes + 64 * static_cast<int64_t>(snapshots[0].values.size()));
}

TEST_CASE("a plan that repeats a stretch, and one of a pipeline, have their snapshots proved", "[snapshot]") {
    Model m = network({0, 1}, false, DType::f32, 16);
    m.program.pipeline({"pp", "1f1b", 1, {}});
    m.program.microbatches(4, {});
    CompileOptions options;
    const Schedule schedule = hand_1f1b(2, 4);
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    const Plan staged = compile(m.program, Mesh({{"pp", 2}}).with_microbatches(4), options).plan;
    CHECK(refusal(staged, snapshots_of(staged)) == "");
    CHECK(staged.classes.size() == 2);

    Model many = mlp(256, 4, 12, true, true);
    const Plan repeated = compile(many.program, Mesh().with_microbatches(128)).plan;
    CHECK(refusal(repeated, snapshots_of(repeated)) == "");
}

TEST_CASE("a bound behind the first write is refused, with the instruction that writes", "[snapshot]") {
    const Plan plan = sound_plan();
    const std::vector<SnapshotPlan> sound = snapshots_of(plan);
    auto late = sound;
    const int bound = last_written(late).written;
    REQUIRE(bound > 0);
    last_written(late).written = bound + 1;
    CHECK_THAT(refusal(plan, late), Contains("class 0: snapshot of") && Contains("copy must end before") &&
                                        Contains("instruction " + std::to_string(bound)) &&
                                        Contains("writes the value"));
    auto never = sound;
    last_written(never).written = none;
    CHECK_THAT(refusal(plan, never), Contains("copy must end before the end of the step, but"));
    auto early = sound;
    first_written(early).written = 0;
    CHECK_THAT(refusal(plan, early), Contains("that does not write the value"));
}

TEST_CASE("an instruction that writes a param before the bound is found by its bytes", "[snapshot]") {
    Plan plan = sound_plan();
    const std::vector<SnapshotPlan> sound = snapshots_of(plan);
    RankClass& c = plan.classes[0];
    const CopiedValue& value = sound[0].values.back();
    const auto kernel =
        std::find_if(c.stream.begin(), c.stream.end(), [](const Instruction& i) { return i.opcode == Opcode::kernel; });
    REQUIRE(kernel != c.stream.end());
    REQUIRE(kernel - c.stream.begin() < value.written);
    // Of another buffer, whose bytes reach into the param's: who goes by buffers alone sees nothing.
    Buffer other = c.buffers[static_cast<size_t>(value.buffer)];
    other.value = none;
    c.buffers.push_back(other);
    kernel->operands.back().buffer = static_cast<int>(c.buffers.size()) - 1;
    kernel->operands.back().offset = value.bytes - 4;
    CHECK_THAT(refusal(plan, sound), Contains("snapshot of '" + plan.program.value(value.value).name) ||
                                         Contains("snapshot of \"" + plan.program.value(value.value).name));
    CHECK_THAT(refusal(plan, sound), Contains("but class 0"));
}

TEST_CASE("a snapshot with a value left out, twice, too small or in another's place is refused", "[snapshot]") {
    const Plan plan = sound_plan();
    const std::vector<SnapshotPlan> sound = snapshots_of(plan);
    auto less = sound;
    less[0].values.pop_back();
    CHECK_THAT(refusal(plan, less), Contains("no snapshot of"));
    auto twice = sound;
    twice[0].values.push_back(twice[0].values.back());
    CHECK_THAT(refusal(plan, twice), Contains("or is a duplicate"));
    auto small = sound;
    small[0].values[0].bytes -= 4;
    CHECK_THAT(refusal(plan, small), Contains("bytes of buffer"));
    auto over = sound;
    over[0].values[1].offset = over[0].values[0].offset;
    CHECK_THAT(refusal(plan, over), Contains("overlaps the previous copy, which ends at"));
    auto beyond = sound;
    beyond[0].bytes -= 64;
    CHECK_THAT(refusal(plan, beyond), Contains("the snapshot has"));
    CHECK_THAT(refusal(plan, {}), Contains("0 snapshots for 1 classes"));
}
