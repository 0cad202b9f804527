// Rolls of a dim: of a split one, ranks exchange blocks by messages between members of a class.
#include <catch2/catch.hpp>

#include "compile/pipeline.h"
#include "interpreter.h"
#include "ir/check_program.h"
#include "ir/op.h"
#include "layout_models.h"
#include "mesh_interpreter.h"
#include "plan/access.h"
#include "plan/lint.h"
#include "plan/summary.h"
#include "schedules.h"
#include "sim/simulate.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;
using C = TransportContract;

namespace {

constexpr int64_t batch = 4, seq = 12, embed = 3;

/// y = x w; z = y * roll(y, first); loss = sum((z + roll(roll(z w, second), second))^2), over sequences of 12.
Model rolled(int64_t first, int64_t second, bool split = true) {
    Model m;
    const ValueId x = m.input("x", {batch, seq, embed}, {"batch", "seq", "embed"});
    const ValueId w = m.param("w", {embed, embed}, {"embed", "out"}), v = m.param("v", {embed, embed}, {"out", ""});
    const auto roll = [&](ValueId in, int64_t by) { return m.op("roll", {in}, {{"dim", int64_t{1}}, {"by", by}}); };
    const ValueId y = m.op("matmul", {x, w});
    const ValueId z = m.op("mul", {y, roll(y, first)});
    const ValueId far = roll(roll(m.op("matmul", {z, v}), second), second);
    m.build.name(far, "far", {});
    m.train(m.op("sum", {m.op("square", {m.op("add", {z, far})})}, {{"dims", std::vector<int64_t>{0, 1, 2}}}));
    if (split) m.split_names({{"seq", "cp"}});
    return m;
}

Mesh ring(int64_t members, int64_t micros = 1) { return Mesh({{"cp", members}}).with_microbatches(micros); }

/// By kind: the ops of the propagated program; "roll cp" exchanges blocks over cp.
std::map<std::string, int> kinds(const Program& program) {
    std::map<std::string, int> found;
    for (const Op& op : program.ops)
        if (op.kind == "roll" || op_def(op.kind).collective)
            ++found[op.attributes.has("axis") ? op.kind + " " + op.attributes.text("axis") : op.kind];
    return found;
}

Program sound(const Program& program, const Mesh& mesh) {
    const auto small = [](const Value& value, ValueId id) { return fill_small(value, id); };
    Program result = distribute(program, mesh);
    CHECK_NOTHROW(check_program(result));
    MeshInterpreter(result, mesh, small).compare(evaluate(program, small));
    return result;
}

CompileOptions over(C::Send send, C::Lanes lanes, int slots = 0) {
    CompileOptions options;
    C& contract = options.contracts["cp"];
    contract.send = send;
    contract.lanes = lanes;
    contract.slots = slots;
    return options;
}
CompileOptions threads() { return over(C::Send::rendezvous, C::Lanes::peer_and_direction); }

const Contents& on_one_rank() {
    static const Contents values = run_steps(compile(rolled(6, 6, false).program, Mesh()), 2).values;
    return values;
}

}  // namespace

TEST_CASE("roll: `by` counts around the end, and names of dims stay") {
    Program program;
    Builder build(program);
    const ValueId x = build.input("x", {DType::i32, {2, 5}}, {"a", "b"}, {});
    const ValueId y = build.one("roll", {x}, {{"dim", int64_t{-1}}, {"by", int64_t{-12}}}, {});
    CHECK(program.op(program.value(y).op).attributes.integer("by") == 3);
    CHECK(program.op(program.value(y).op).attributes.integer("dim") == 1);
    CHECK(program.value(y).dims == std::vector<std::string>{"a", "b"});
    CHECK_THROWS_WITH(build.one("roll", {x}, {{"dim", int64_t{2}}, {"by", int64_t{1}}}, {}), Contains("is not a dim"));
    CHECK_THROWS_WITH(build.one("roll", {x}, {{"dim", int64_t{0}}}, {}), Contains("attribute \"by\""));
}

TEST_CASE("roll: a split dim stays split where the roll moves whole blocks, and is gathered where it does not") {
    // Three rolls, and their gradients.
    const std::map<std::string, int> exchanged{{"roll cp", 6}, {"all_reduce cp", 3}};
    CHECK(kinds(sound(rolled(6, 6).program, ring(2))) == exchanged);
    CHECK(kinds(sound(rolled(4, 8).program, ring(3))) == exchanged);
    CHECK(kinds(sound(rolled(2, 10).program, ring(6))) == exchanged);
    CHECK(kinds(sound(rolled(6, -2).program, ring(6, 2))) == exchanged);
    CHECK(kinds(sound(rolled(6, 12).program, ring(4)))["roll cp"] == 2);  // a roll by all 12 moves nothing
    const auto made_whole = kinds(sound(rolled(6, 1).program, ring(2)));
    CHECK(made_whole.at("roll cp") == 2);
    CHECK(made_whole.at("roll") == 4);
    CHECK(made_whole.at("all_gather cp") > 0);
    CompileOptions forbids;
    forbids.redistribution.forbid_implicit = true;
    CHECK_THROWS_WITH(distribute(rolled(6, 1).program, ring(2), forbids),
                      Contains("roll reads dim 1 (seq) whole, as 1 is not a multiple of a rank's block"));
    CHECK_NOTHROW(distribute(rolled(6, 6).program, ring(2), forbids));
}

TEST_CASE("roll: the outermost of several axes exchanges, others stay") {
    Model m = rolled(6, 3, false);
    m.split_names({{"seq", "cp"}, {"seq", "tp"}, {"batch", "dp"}});
    const Mesh mesh = Mesh({{"dp", 2}, {"cp", 2}, {"tp", 2}}).with_microbatches(2);
    const auto found = kinds(sound(m.program, mesh));
    CHECK(found.at("roll cp") == 2);
    CHECK(found.at("roll") + (found.count("roll tp") ? found.at("roll tp") : 0) == 4);
    CHECK(kinds(sound(rolled(6, 3, false).program, mesh)) == std::map<std::string, int>{{"roll", 6}});
    Model whole = rolled(6, 6, false);
    whole.split_names({{"seq", "cp"}, {"seq", "tp"}});
    CHECK(kinds(sound(whole.program, Mesh({{"cp", 2}, {"tp", 3}}))).at("roll cp") == 6);
}

TEST_CASE("roll: ranks leave the numbers of one rank") {
    for (const int64_t micros : {1, 2, 4}) {
        const Lowered two = compile(rolled(6, 6).program, ring(2, micros), threads());
        CHECK(difference(run_steps(two, 2).values, on_one_rank(), 2e-5) == "");
    }
    const Contents one = run_steps(compile(rolled(4, -8, false).program, Mesh()), 2).values;
    CHECK(difference(run_steps(compile(rolled(4, -8).program, ring(3), threads()), 2).values, one, 2e-5) == "");
    CHECK(difference(run_steps(compile(rolled(4, -8).program, ring(3, 2), threads()), 2).values, one, 2e-5) == "");
    Model m = rolled(6, 6);
    m.split_names({{"batch", "dp"}});
    const Mesh mesh = Mesh({{"dp", 2}, {"cp", 2}}).with_microbatches(2);
    CHECK(difference(run_steps(compile(m.program, mesh, threads()), 2).values, on_one_rank(), 2e-5) == "");
}

TEST_CASE("roll: each member sends its block once, in plan and transport, and the lint lists it") {
    const int64_t members = 3, micros = 2, block = batch / micros * seq / members * embed * 4;
    const Lowered lowered = compile(rolled(4, 8).program, ring(members, micros), threads());
    const int64_t sent = 6 * micros * block;  // three rolls and their gradients, S bytes each
    int64_t sums = 0, messages = 0;
    for (const Redistribution& e : redistributions(lowered.plan)) {
        CHECK_FALSE(e.implicit);
        if (e.kind != "roll") {
            sums += e.bytes;
            continue;
        }
        messages += e.bytes;
        CHECK(e.axis == "cp");
        CHECK_THAT(e.why, Contains("rolls a dim that is split"));
    }
    CHECK(messages == sent);
    for (const Op& op : lowered.plan.program.ops)
        if (op.kind == "roll") CHECK(op.attributes.integer("sends") == block);
    int64_t counted = 0;
    const PlanSummary counts = summary(lowered.plan);
    for (const ClassSummary::Traffic& traffic : counts.classes.at(0).traffic) counted += traffic.bytes_sent;
    CHECK(counted == sent + sums);
    const Ran ran = run_steps(lowered);
    for (const std::vector<Traffic>& rank : ran.traffic) CHECK(rank.at(0).messages >= 6 * micros);
}

TEST_CASE("roll: on every contract that can exchange, in the steady state of many micro-batches, too") {
    for (const int64_t micros : {1, 2, 4})
        for (const int64_t members : {2, 3, 6}) {
            const Program program = rolled(12 / members, 12 - 12 / members).program;
            const Mesh mesh = ring(members, micros);
            CHECK_NOTHROW(compile(program, mesh, threads()));
            CHECK_NOTHROW(compile(program, mesh, over(C::Send::grouped, C::Lanes::communicator)));
            CHECK_NOTHROW(compile(program, mesh, over(C::Send::buffered, C::Lanes::communicator, 1)));
            CHECK_THROWS_WITH(compile(program, mesh, over(C::Send::rendezvous, C::Lanes::communicator)),
                              Contains("never ends"));
        }
}

TEST_CASE("roll: a received block is copied before its group sends it on") {
    const auto copies = [](const CompileOptions& options) {
        const Lowered lowered = compile(rolled(6, 6).program, ring(2), options);
        const auto& stream = lowered.plan.classes.at(0).stream;
        return std::count_if(stream.begin(), stream.end(),
                             [](const Instruction& i) { return i.opcode == Opcode::copy && i.op != none; });
    };
    CHECK(copies(over(C::Send::grouped, C::Lanes::communicator)) == 2);  // the second roll of two, and its gradient
    CHECK(copies(threads()) == 0);
}

TEST_CASE("roll: a message to another member than the op says is refused") {
    const Lowered lowered = compile(rolled(3, 9).program, ring(4), threads());
    const Network network = threads().contracts;
    Plan plan = lowered.plan;
    for (Instruction& i : plan.classes[0].stream) {
        if (!is_message(i.opcode)) continue;
        CHECK(i.relative);
        const Instruction before = i;
        i.peer = i.peer % 3 + 1;
        CHECK_THROWS_WITH(check_form(plan, network), Contains("of axis cp, expected member +"));
        i = before;
        i.relative = false;
        CHECK_THROWS_WITH(check_form(plan, network), Contains("of axis cp, expected member +"));
        i = before;
    }
    // An exchange that is left out.
    auto& stream = plan.classes[0].stream;
    for (Instruction& i : stream)
        if (is_message(i.opcode)) {
            i.opcode = Opcode::copy;
            i.operands.push_back(i.operands[0]);
            break;
        }
    CHECK_THROWS_AS(prove(plan, threads()), Error);
}

TEST_CASE("roll: verify passes, and names the receive that a rank changes") {
    for (const int64_t members : {2, 3}) {
        const Program program = rolled(12 / members, -12 / members).program;
        const Lowered lowered = compile(program, ring(members, 2), threads());
        check_names_rank_1(program, lowered, "far");
    }
}

namespace {

/// A message takes a second, all else no time.
class Seconds final : public Prices {
public:
    Demand kernel(const KernelSpec&, int64_t) override { return {}; }
    Demand copy(int64_t, int64_t) override { return {}; }
    Demand collective(Opcode, AxisId, int64_t, const std::vector<int64_t>&, const std::vector<int64_t>&) override {
        return {};
    }
    Demand message(AxisId, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override {
        sent += bytes;
        return {1, {}, 0, ""};
    }
    double capacity(ResourceId) const override { return 1; }
    int64_t sent = 0;
};

}  // namespace

TEST_CASE("roll: the simulator prices each exchange as a message") {
    for (const int64_t members : {2, 4}) {
        const CompileOptions options = threads();
        const Lowered lowered = compile(rolled(6, 6).program, ring(members), options);
        Seconds prices;
        const Simulated run = simulate(lowered.plan, options.contracts, prices);
        CHECK(run.step_s == Approx(6));  // none of the six overlaps with another
        CHECK(prices.sent % (batch * seq / members * embed * 4) == 0);
    }
}

TEST_CASE("merge: below f32, o is of the compute type and lse stays f32") {
    for (const DType compute : {DType::bf16, DType::f16}) {
        Model m;
        m.compute = compute;
        std::vector<ValueId> parts;
        for (const std::string part : {"a", "b"}) {
            std::vector<ValueId> operands;
            for (const char* name : {"q", "k", "v"})
                operands.push_back(m.param(name + part, {batch, seq, 2, 8}, {"batch", "seq", "heads", "head_dim"}));
            for (const ValueId made : m.build.add("attention", operands, {}, m.here())) parts.push_back(made);
        }
        m.train(m.op("sumsq", {m.op("merge", parts)}));
        const Lowered lowered = compile(m.program, ring(2), threads());
        int merges = 0;
        for (const Op& op : lowered.plan.program.ops) {
            if (op.kind != "merge") continue;
            ++merges;
            for (size_t i = 0; i < 4; ++i)
                CHECK(lowered.plan.program.value(op.inputs[i]).type.dtype == (i % 2 == 0 ? compute : DType::f32));
        }
        CHECK(merges == 1);
    }
}

TEST_CASE("merge: a part that sees no key adds nothing, and neither part gives NaN") {
    using T = std::vector<double>;
    const double none_seen = -std::numeric_limits<double>::infinity();
    Program program;
    Builder build(program);
    const TensorType o{DType::f32, {1, 2, 2, 1}}, lse{DType::f32, {1, 2, 2}};
    std::vector<ValueId> parts;
    for (const char* name : {"o_a", "lse_a", "o_b", "lse_b"})
        parts.push_back(build.param(name, name[0] == 'o' ? o : lse, {}, {}, {}));
    const std::vector<ValueId> merged = build.add("merge", parts, {}, {});
    // lse is -inf where no part sees a key: the loss reads exp(lse), which is 0 there.
    const ValueId weights = build.one("exp", {merged[1]}, {}, {});
    const std::vector<int64_t> all{0, 1, 2};
    const ValueId loss = build.one(
        "add", {build.one("sumsq", {merged[0]}, {}, {}), build.one("sum", {weights}, {{"dims", all}}, {})}, {}, {});
    differentiate(program, loss);
    // By query and head: both parts, the first alone, the second alone, neither.
    const std::vector<T> given{
        {2, 3, 5, 0}, {0.5, none_seen, 1, none_seen}, {4, 0, 7, 0}, {1.5, 2, none_seen, none_seen}};
    const auto values = evaluate(program, [&](const Value& value, ValueId id) {
        Array array(TensorType{DType::f64, value.type.shape});
        const T& from = given[static_cast<size_t>(id)];
        // given is by (query, head), lse is stored by (head, query)
        for (size_t e = 0; e < 4; ++e) array.f64()[e] = from[value.name[0] == 'l' ? e % 2 * 2 + e / 2 : e];
        return array;
    });
    const auto of = [&](ValueId id) { return values[static_cast<size_t>(id)]; };
    const double a = std::exp(0.5) / (std::exp(0.5) + std::exp(1.5)), b = 1 - a;
    const Array merged_o = of(merged[0]), merged_lse = of(merged[1]);
    CHECK(merged_o.f64()[0] == Approx(2 * a + 4 * b));
    CHECK(merged_o.f64()[1] == Approx(0).margin(1e-12));
    CHECK(merged_o.f64()[2] == Approx(5));
    CHECK(merged_o.f64()[3] == 0);
    CHECK(merged_lse.f64()[0] == Approx(std::log(std::exp(0.5) + std::exp(1.5))));
    CHECK(merged_lse.f64()[1] == Approx(1));
    CHECK(merged_lse.f64()[2] == Approx(2));
    CHECK(merged_lse.f64()[3] == none_seen);
    for (const ValueId part : parts) {
        const Array gradient = of(program.grad_of(part));
        for (int64_t e = 0; e < 4; ++e) CHECK(std::isfinite(gradient.f64()[e]));
        CHECK(gradient.f64()[3] == 0);
    }
    CHECK(of(program.grad_of(parts[0])).f64()[2] == Approx(10));  // the first part alone: d(o^2)
    CHECK(of(program.grad_of(parts[2])).f64()[2] == 0);
}
