// Gradients that cross ranks in a narrower type: what is cast where, what is sent, and what comes of it.
#include "compile/passes/narrow_gradients.h"

#include <catch2/catch.hpp>

#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout_models.h"
#include "one_transport.h"
#include "schedules.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated(), P = Placement::partial(ReduceOp::sum);

/// Data parallelism over dp; `stage` of ZeRO, 0: none. Every param has a first dim that 2 divides.
Program spread(int stage, int64_t micro, int64_t bucket, bool narrow) {
    Model m = mlp(16, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    for (const ValueId param : stage > 0 ? m.program.params() : std::vector<ValueId>{}) {
        for (const ValueId state : m.program.states_of(param)) m.program.store(state, "dp", S(0), {});
        const ValueId grad = m.program.grad_of(param);
        if (stage == 1) {
            m.program.store(grad, "dp", P, {}, true);
            m.program.use(grad, "dp", S(0), {});
        } else {
            m.program.store(grad, "dp", S(0), {});
        }
        if (stage < 3) continue;
        m.program.store(param, "dp", S(0), {});
        m.program.use(param, "dp", R, {}, Keep::fragment);
    }
    if (micro > 1) m.program.microbatches(micro, {});
    m.program.bucket("dp", bucket, {});
    if (narrow) m.program.reduce_as("dp", DType::bf16, {});
    return m.program;
}

Mesh two(int64_t micro) { return Mesh({{"dp", 2}}).with_microbatches(micro); }

/// Messages and bytes by kind and type: "reduce_scatter bf16".
using Sent = std::map<std::string, std::pair<int, int64_t>>;

Sent sent(const Plan& plan) {
    Sent all;
    for (const Instruction& i : plan.classes.front().stream) {
        if (i.axis == none) continue;
        auto& [count, bytes] =
            all[std::string(name_of(i.opcode)) + " " + std::string(name_of(i.operands[0].type.dtype))];
        ++count;
        bytes += std::max(i.operands[0].type.bytes(), i.operands[1].type.bytes());
    }
    return all;
}

int casts_to_bf16(const Plan& plan) {
    int count = 0;
    for (const Instruction& i : plan.classes.front().stream)
        if (i.opcode == Opcode::kernel) {
            const KernelSpec& spec = plan.classes.front().kernels[static_cast<size_t>(i.kernel)];
            count += op_def(spec.op).casts && spec.outputs[0].dtype == DType::bf16;
        }
    return count;
}

}  // namespace

TEST_CASE("gradients in bf16 are the same messages in half the bytes; the loss and the norm stay f32") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Mesh mesh = two(micro);
                const Lowered wide = compile(spread(stage, micro, bucket, false), mesh);
                const Lowered narrow = compile(spread(stage, micro, bucket, true), mesh);
                Sent expected;
                const std::string gradients = stage == 0 ? "all_reduce" : "reduce_scatter";
                const Sent before = sent(wide.plan);
                for (const auto& [what, entry] : before) expected[what] = entry;
                // The loss and, where gradients are split, their norm share all_reduce with nothing else.
                auto& own = expected[gradients + " f32"];
                auto& half = expected[gradients + " bf16"];
                int loss = 0;
                if (stage == 0) loss = 1;
                half = {own.first - loss, (own.second - 4 * loss) / 2};
                own = {loss, 4 * loss};
                if (loss == 0) expected.erase(gradients + " f32");
                CHECK(sent(narrow.plan) == expected);
            }
}

TEST_CASE("contributions of micro-batches are added up in the gradient's own type") {
    for (const int stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        const Lowered lowered = compile(spread(stage, 4, 0, true), two(4));
        // Inside the loop a message for each micro-batch, behind it one for all.
        const int params = 4, messages = stage < 2 ? params : 4 * params;
        CHECK(casts_to_bf16(lowered.plan) == messages);
        for (const RankClass& c : lowered.plan.classes)
            for (const Instruction& i : c.stream) {
                if (i.opcode != Opcode::kernel) continue;
                const KernelSpec& spec = c.kernels[static_cast<size_t>(i.kernel)];
                const bool adds = spec.attributes.flag("accumulate") || is_sum(op_def(spec.op));
                if (adds) CHECK(spec.outputs[0].dtype == DType::f32);
            }
    }
}

TEST_CASE("what came over in bf16 is verified within what its rounding explains, and a mistake is named", "[slow]") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Program program = spread(stage, micro, bucket, true);
                const Lowered lowered = compile(program, two(micro));
                const VerifyReport report = verify_plan(program, lowered);
                INFO(report.text(lowered.plan, {}));
                CHECK(report.passed());
                CHECK(report.unjudged.empty());
                CHECK_FALSE(report.judges_gradients);
                CHECK_THAT(report.text(lowered.plan, {}), Catch::Contains("gradients are sent as bf16 over dp"));
                Verifying wrong;
                wrong.options.injections = {parse_injection("scale,rank=1,tensor=up.w.grad,by=1.01")};
                const VerifyReport named = verify_plan(program, lowered, wrong);
                CHECK_FALSE(named.passed());
                REQUIRE_FALSE(named.roots.empty());
                CHECK(program.value(named.roots[0].value).name == "up.w.grad");
                CHECK(named.roots[0].rank == 1);
            }
}

TEST_CASE("over axes of which one is narrow the sums of the other keep their type", "[slow]") {
    for (const bool both : {false, true}) {
        Model m = mlp(16, 4, 12, true, true);
        m.split_names({{"batch", "rep"}, {"batch", "dp"}});
        m.program.reduce_as("dp", DType::bf16, {});
        if (both) m.program.reduce_as("rep", DType::bf16, {});
        const Mesh mesh({{"rep", 2}, {"dp", 2}});
        const Lowered lowered = compile(m.program, mesh);
        std::map<std::string, int> counts;
        for (const Instruction& i : lowered.plan.classes.front().stream)
            if (i.axis != none) ++counts[mesh.axis(i.axis).name + " " + std::string(name_of(i.operands[0].type.dtype))];
        std::map<std::string, int> expected{{"dp bf16", 4}, {"dp f32", 1}, {"rep f32", both ? 1 : 5}};
        if (both) expected["rep bf16"] = 4;
        CHECK(counts == expected);
        CHECK(casts_to_bf16(lowered.plan) == 4);  // what was sent once goes on as it is
        CHECK(verify_plan(m.program, lowered).passed());
    }
}

TEST_CASE("sums of two terms, and of two axes, leave the loop over micro-batches in order", "[slow]") {
    for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20})
        for (const bool both : {false, true}) {
            Model m = network({0, 0}, true, DType::f32, 16);  // a tied table: its gradient has two terms
            m.split_names({{"batch", "rep"}, {"batch", "dp"}});
            m.program.microbatches(2, {});
            for (const char* axis : {"rep", "dp"}) m.program.bucket(axis, bucket, {});
            m.program.reduce_as("dp", DType::bf16, {});
            if (both) m.program.reduce_as("rep", DType::bf16, {});
            const Mesh mesh = Mesh({{"rep", 2}, {"dp", 2}}).with_microbatches(2);
            CompileOptions options;
            options.transports = one_transport(mesh);
            for (const CompileOptions& how : {CompileOptions(), options}) {
                INFO("bucket " << bucket << (both ? ", both narrow" : "") << ", " << how.transports.size());
                const Lowered lowered = compile(m.program, mesh, how);
                const VerifyReport report = verify_plan(m.program, lowered);
                INFO(report.text(lowered.plan, {}));
                CHECK(report.passed());
                CHECK(casts_to_bf16(lowered.plan) == 7);
            }
        }
}

TEST_CASE("gradients of a pipeline and of split products cross dp in bf16") {
    Model m = network({0, 1}, true, DType::f32, 16);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Schedule schedule = hand_1f1b(2, 2);
    m.program.pipeline({"pp", schedule.name, 1, {}});
    m.program.microbatches(2, {});
    m.program.reduce_as("dp", DType::bf16, {});
    const Mesh mesh = Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}).with_microbatches(2);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    const Lowered lowered = compile(m.program, mesh, options);
    const VerifyReport report = verify_plan(m.program, lowered);
    INFO(report.text(lowered.plan, {}));
    CHECK(report.passed());
    int narrow = 0;
    for (const RankClass& c : lowered.plan.classes)
        for (const Instruction& i : c.stream)
            if (i.axis != none && i.operands[0].type.dtype == DType::bf16) {
                CHECK(mesh.axis(i.axis).name == "dp");
                ++narrow;
            }
    CHECK(narrow == 7);  // a table, and two layers of three
}

TEST_CASE("the type of gradients' messages is printed, parsed and checked") {
    Program program = spread(1, 1, 0, true);
    CHECK(program.reduced_as("dp") == DType::bf16);
    CHECK(program.axes_with("reduce") == std::vector<std::string>{"dp"});
    CHECK(parse(print(program), "p.ir").edges() == program.edges());
    CHECK(print(parse(print(program), "p.ir")) == print(program));
    CHECK_THROWS_WITH(program.reduce_as("dp", DType::f16, {"zero", "a.lua", 4, 0}),
                      Catch::Contains("gradients over dp cannot be sent as f16") && Catch::Contains("65504"));
    CHECK_THROWS_WITH(program.reduce_as("dp", DType::i32, {}), Catch::Contains("give \"bf16\""));
    // bf16 programs have f32 gradients of matrices; what is bf16 already is left alone.
    const Program same = spread(1, 1, 0, false);
    Program bare = distribute(same, Mesh({{"dp", 2}}));
    const std::string before = print(bare);
    narrow_gradients(bare, Mesh({{"dp", 2}}));
    CHECK(print(bare) == before);
}
