// Verification: right plans pass, and one mistake on one rank is named where it is.
#include <catch2/catch.hpp>

#include "ir/describe.h"
#include "layout_models.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

VerifyReport passes(const Program& program, const Mesh& mesh, const Verifying& how = {}) {
    INFO("mesh " << mesh.text());
    const Lowered lowered = compile(program, mesh);
    const VerifyReport report = verify_plan(program, lowered, how);
    INFO(report.text(lowered.plan, how.options));
    CHECK(report.passed());
    return report;
}

VerifyReport with_mistake(const Model& m, const Mesh& mesh, const std::string& mistake) {
    const Lowered lowered = compile(m.program, mesh);
    Verifying how;
    how.options.injections = {parse_injection(mistake)};
    const VerifyReport report = verify_plan(m.program, lowered, how);
    UNSCOPED_INFO(report.text(lowered.plan, how.options));
    CHECK_FALSE(report.passed());
    REQUIRE(!report.roots.empty());
    return report;
}

Model split_block(bool clip = true) {
    Model m = block(4, 4, 2, 4, 12, true, clip);
    m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"batch", "dp"}});
    return m;
}

std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("verify: meshes of data, tensor, sequence and sharded state agree with one device", "[slow]") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    passes(m.program, mesh_of({}));
    passes(m.program, mesh_of({{"dp", 2}}));
    passes(m.program, mesh_of({{"tp", 3}}, 2));
    passes(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));

    Model b = split_block();
    for (const char* name : {"residual1", "residual2"}) b.store(name, "tp", S(1));
    b.program.bucket("dp", 1 << 20, {});
    const VerifyReport report = passes(b.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    CHECK(report.ranks == 4);
    CHECK(report.judges_gradients);
    CHECK(report.gradients >= 0);
    CHECK(report.unjudged.empty());
    for (const Compared& line : report.compared) {
        CHECK(line.comparisons > 0);
        CHECK(line.worst < 1);
    }
    CHECK(report.values > 60);

    Model z = split_block();
    for (ValueId param : z.program.params()) {
        const Value& value = z.program.value(param);
        if (value.type.shape[0] % 2 != 0 || z.program.dim(param, "heads") == 0) continue;
        z.program.store(param, "dp", S(0), {"zero", "strategy.lua", 3, 0});
        z.program.use(param, "dp", Placement::replicated(), {"zero", "strategy.lua", 4, 0}, Keep::fragment);
    }
    passes(z.program, mesh_of({{"dp", 2}}, 2));
}

TEST_CASE("verify: axes that share messages leave no more values without bytes") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}});
    const Mesh mesh = mesh_of({{"rep", 2}, {"dp", 2}});
    CompileOptions joining;
    joining.transports = one_transport(mesh);
    const Lowered joined = compile(m.program, mesh, joining);
    REQUIRE(joined.plan.program.values.size() == compile(m.program, mesh).plan.program.values.size());
    const VerifyReport together = verify_plan(m.program, joined), apart = passes(m.program, mesh);
    CHECK(together.passed());
    CHECK(together.values < apart.values);
    CHECK(together.unseen == apart.unseen);
}

TEST_CASE("verify: half precision passes with what rounding explains") {
    Model m = mlp(8, 4, 12, true, true, DType::bf16);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const VerifyReport report = passes(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    CHECK_FALSE(report.judges_gradients);
}

TEST_CASE("verify: a gradient that one rank scales is named with its rank and micro-batch") {
    const Model m = split_block();
    const Mesh mesh = mesh_of({{"dp", 2}, {"tp", 2}}, 2);
    const VerifyReport report = with_mistake(m, mesh, "scale,rank=2,tensor=up.w.grad,by=1.01,micro=1");
    CHECK(report.roots_in_all == 1);
    const Finding& first = report.roots[0];
    CHECK(first.rank == 2);
    CHECK(first.micro == 1);
    CHECK(m.program.value(first.value).name == "up.w.grad");
    CHECK_FALSE(first.planned);
    CHECK(first.far.distance == Approx(0.01 * first.far.norm).epsilon(0.01));
    CHECK(report.further > 0);
}

TEST_CASE("verify: a rank that keeps the unreduced values of a bucket is named", "[slow]") {
    for (int64_t bucket : {0, 1 << 20}) {
        Model m = split_block();
        m.program.bucket("dp", bucket, {});
        const Mesh mesh = mesh_of({{"dp", 2}, {"tp", 2}});
        const VerifyReport report = with_mistake(m, mesh, "unreduced,rank=3,tensor=down.w.grad");
        bool named = false;
        for (const Finding& finding : report.roots) {
            CHECK(finding.rank == 3);
            CHECK_FALSE(finding.edge.empty());
            CHECK(finding.members.empty());
            const Program propagated = distribute(m.program, mesh);
            named |= propagated.value(original_of(propagated, finding.value)).name == "down.w.grad";
        }
        CHECK(named);
        CHECK((bucket == 0) == (report.roots_in_all == 1));  // of a bucket, every member
    }
}

TEST_CASE("verify: a scaled bf16 value is named, though 1 % is within rounding") {
    Model m = mlp(8, 4, 12, true, true, DType::bf16);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    ValueId half = none;
    for (const Op& op : m.program.ops)
        if (op.kind == "gelu") half = op.outputs[0];
    REQUIRE(half != none);
    REQUIRE(m.program.value(half).type.dtype == DType::bf16);
    m.build.name(half, "hidden", {});
    const VerifyReport report =
        with_mistake(m, mesh_of({{"dp", 2}, {"tp", 2}}, 2), "scale,rank=1,tensor=hidden,by=1.01,micro=1");
    CHECK(report.roots_in_all == 1);
    const Finding& first = report.roots[0];
    CHECK(first.own);
    CHECK(first.rank == 1);
    CHECK(first.micro == 1);
    CHECK(m.program.value(first.value).name == "hidden");
}

TEST_CASE("verify: elements of a param whose gradient is noise are left out, others are not") {
    Model m;
    const ValueId x = m.input("x", {8, 4}, {"batch", "embed"});
    const ValueId w = m.param("w", {4, 6}, {"embed", "mlp"}), b = m.param("b", {6}, {"mlp"});
    // The sum of a softmax is 1 whatever goes in: every gradient in front of it is noise.
    const ValueId p = m.op("softmax", {m.op("matmul", {x, w, b})});
    const ValueId y = m.op("matmul", {x, m.param("v", {4, 6}, {"embed", "mlp"})});
    using Ints = std::vector<int64_t>;
    const ValueId one = m.op("sum", {p}, {{"dims", Ints{0, 1}}});
    const ValueId other = m.op("sum", {m.op("square", {y})}, {{"dims", Ints{0, 1}}});
    m.train(m.op("add", {one, other}), true);
    m.split_names({{"batch", "dp"}});
    Verifying how;
    how.options.steps = 6;
    const VerifyReport report = passes(m.program, mesh_of({{"dp", 2}}, 2), how);
    CHECK(report.steps == 6);
    CHECK(report.compared[3].left_out >= 6 * 2 * 30);  // w and b, on two ranks
    CHECK(report.compared[3].left_out < report.compared[3].elements / 2);
}

TEST_CASE("verify: the algorithms of the configuration are those that run", "[slow]") {
    const Model m = split_block();
    const Mesh mesh = mesh_of({{"dp", 4}}, 1);
    Verifying how;
    how.collectives["dp"] = {recursive_doubling_table(4)};
    const VerifyReport right = passes(m.program, mesh, how);
    CHECK(right.collectives == std::vector<std::string>{"all_reduce over dp by recursive_doubling"});
    how.collectives["dp"][0].moves.pop_back();  // one rank lacks the others' sum in the end
    const Lowered lowered = compile(m.program, mesh);
    const VerifyReport wrong = verify_plan(m.program, lowered, how);
    CHECK_FALSE(wrong.passed());
    REQUIRE(!wrong.roots.empty());
    CHECK(wrong.roots[0].planned);
}

TEST_CASE("verify: a gradient that is compared nowhere is no pass", "[slow]") {
    const Model m = split_block();
    const Mesh mesh = mesh_of({{"dp", 2}});
    const Lowered lowered = compile(m.program, mesh);
    VerifyReport report = verify_plan(m.program, lowered);
    CHECK(report.passed());
    CHECK(report.unjudged.empty());
    report.unjudged.push_back(*m.program.find("up.w"));
    CHECK_FALSE(report.passed());
    CHECK(report.text(lowered.plan, {}).find("NOT JUDGED: the gradient of up.w\n  never compared") !=
          std::string::npos);
    report.noisy = report.unjudged;
    CHECK(report.text(lowered.plan, {}).find("noise has changed the params") != std::string::npos);
    CHECK(report.text(lowered.plan, {}).find("never compared") == std::string::npos);
    // Without an optimizer a gradient that the run keeps is compared where it stands complete; others are not made.
    Model bare = mlp(8, 4, 12);
    bare.program.updates.clear();
    bare.split_names({{"batch", "dp"}});
    CHECK(passes(bare.program, mesh).gradients == -1);
    bare.program.results.push_back({"kept", bare.program.grad_of(*bare.program.find("up.w"))});
    const VerifyReport kept = passes(bare.program, mesh);
    CHECK(kept.gradients >= 0);
    CHECK(kept.unjudged.empty());
}

TEST_CASE("verify: a wrong plan is told from a wrong rank") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    Lowered lowered = compile(m.program, mesh_of({{"tp", 2}}));
    // Every rank computes another activation than the program asks for.
    for (RankClass& c : lowered.plan.classes)
        for (KernelSpec& kernel : c.kernels)
            if (kernel.op == "matmul_bias_gelu") kernel.attributes.set("approx", std::string("erf"));
    const VerifyReport report = verify_plan(m.program, lowered);
    REQUIRE(!report.roots.empty());
    const Finding& first = report.roots[0];
    CHECK(first.planned);
    CHECK(m.program.op(m.program.value(first.value).op).kind == "gelu");
    INFO(report.text(lowered.plan, {}));
    CHECK(report.text(lowered.plan, {}).find("layout, lowering or kernel") != std::string::npos);
}

TEST_CASE("verify: bits are equal where no sum changes its order", "[slow]") {
    Verifying how;
    how.options.bitwise = true;
    how.options.steps = 1;
    how.reference = true;  // its kernels sum blocks of any size in one order
    const Model m = split_block();
    const VerifyReport alone = passes(m.program, mesh_of({}), how);
    CHECK(alone.exact > alone.reordered);
    const VerifyReport split = passes(m.program, mesh_of({{"dp", 2}}), how);
    CHECK(split.exact > 20);
    CHECK(split.reordered > 0);
    CHECK(!split.sums.empty());
    CHECK(passes(m.program, mesh_of({{"dp", 2}, {"tp", 2}}), how).exact < split.exact);
    Model fused = mlp(8, 4, 12, true, true);  // its plan joins gelu, its slope and the biases with the products
    passes(fused.program, mesh_of({}), how);
    fused.split_names({{"batch", "dp"}});
    passes(fused.program, mesh_of({{"dp", 2}}), how);
    // On one rank a fused kernel has the bits of the plain ones, in the CPU's own kernels, too.
    Verifying fast = how;
    fast.reference = false;
    for (const DType compute : {DType::f32, DType::bf16}) {
        const VerifyReport report = passes(block(4, 4, 2, 4, 12, false, true, compute).program, mesh_of({}), fast);
        CHECK(report.exact > 40);
    }
    // One unit in the last place is no rounding then.
    how.options.injections = {parse_injection("scale,rank=1,tensor=residual1,by=1.0000001")};
    const Lowered lowered = compile(m.program, mesh_of({{"dp", 2}}));
    const VerifyReport off = verify_plan(m.program, lowered, how);
    REQUIRE(!off.roots.empty());
    CHECK(m.program.value(off.roots[0].value).name == "residual1");
    CHECK(off.roots[0].rank == 1);
}

TEST_CASE("verify: what cannot be done is said before anything runs") {
    const Model m = split_block();
    const Lowered lowered = compile(m.program, mesh_of({{"dp", 2}}));
    const auto asked = [&](const std::string& mistake) {
        return error_of([&] {
            Verifying how;
            how.options.injections = {parse_injection(mistake)};
            verify_plan(m.program, lowered, how);
        });
    };
    CHECK(asked("scale,rank=2,tensor=up.w.grad").find("rank 2 does not exist") != std::string::npos);
    CHECK(asked("scale,rank=1,tensor=up.w.gradd").find("did you mean \"up.w.grad\"") != std::string::npos);
    CHECK(asked("unreduced,rank=1,tensor=residual1").find("reduces no tensor \"residual1\"") != std::string::npos);
    CHECK(asked("unexchanged,rank=1,tensor=residual1").find("exchanges no tensor \"residual1\"") != std::string::npos);
    CHECK(asked("double,rank=1").find("expected scale, unreduced or unexchanged") != std::string::npos);
    CHECK(asked("scale,rank=one,tensor=x").find("\"one\" is not a number") != std::string::npos);
    CHECK(asked("scale,rank=1").find("the tensor is missing") != std::string::npos);
    CHECK(asked("scale,tensor=x,size=2").find("unknown key \"size\"") != std::string::npos);
    Model wide = mlp(128, 4, 12);
    wide.split_names({{"batch", "dp"}});
    const Lowered many = compile(wide.program, mesh_of({{"dp", 128}}));
    CHECK(error_of([&] { verify_plan(wide.program, many); }).find("at most 64") != std::string::npos);
}
