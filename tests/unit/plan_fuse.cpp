// Fused ops: what is joined and what is left alone, the same numbers as the plain ops, on one device and on a mesh.
#include <catch2/catch.hpp>

#include <map>

#include "compile/passes/fuse.h"
#include "interpreter.h"
#include "ir/check_program.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout_models.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

using Ints = std::vector<int64_t>;

int count(const Program& program, std::string_view kind) {
    return static_cast<int>(
        std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

const Op& find(const Program& program, std::string_view kind) {
    const auto found =
        std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; });
    REQUIRE(found != program.ops.end());
    return *found;
}

/// up, gelu, down; `use` sees x, the product in front of the gelu, and what comes out, and gives the loss.
template <class Use>
Model perceptron(Use use, Attributes up = {}) {
    Model m;
    const ValueId x = m.input("x", {6, 4}, {"batch", "embed"});
    const bool turned = up.flag("trans_b");
    const ValueId w =
        m.param("up.w", turned ? Shape{8, 4} : Shape{4, 8}, turned ? Names{"mlp", "embed"} : Names{"embed", "mlp"});
    const ValueId pre = m.op("matmul", {x, w, m.param("up.b", {8}, {"mlp"})}, std::move(up));
    const ValueId y = m.op("gelu", {pre});
    const ValueId out =
        m.op("matmul", {y, m.param("down.w", {8, 4}, {"mlp", "embed"}), m.param("down.b", {4}, {"embed"})});
    m.train(use(m, pre, out));
    return m;
}

/// x + x w, its norm, and a second branch from there; `use` sees the sum and its norm, and gives the loss.
template <class Use>
Model residual(const std::string& norm, Use use, DType compute = DType::f32) {
    Model m;
    m.compute = compute;
    const ValueId x = m.input("x", {6, 4}, {"batch", "embed"});
    const ValueId w = m.param("w", {4, 4}, {"embed", ""}), gain = m.param("gain", {4}, {"embed"});
    const ValueId h = m.op("matmul", {x, w});
    const ValueId sum = m.op("add", {h, m.op("matmul", {h, m.param("v", {4, 4}, {"", ""})})});
    std::vector<ValueId> operands{sum, gain};
    if (norm == "layernorm") operands.push_back(m.param("bias", {4}, {"embed"}));
    const ValueId y = m.build.add(norm, operands, {}, m.here())[0];
    m.train(use(m, sum, y));
    return m;
}

int with_residual(const Program& program, const std::string& norm) {
    const size_t least = norm == "layernorm" ? 4 : 3;
    return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
        return (op.kind == norm && op.inputs.size() == least) ||
               (op.kind == norm + "_grad" && op.inputs.size() == least + 2);
    }));
}

ValueId sum_of_squares(Model& m, ValueId x) { return m.op("sum", {m.op("square", {x})}, {{"dims", Ints{0, 1}}}); }

/// Every value of the plain program that the fused one still makes.
void same_numbers(const Program& plain, const Program& fused) {
    const Fill fill = [](const Value& value, ValueId id) {
        const bool positive = value.role == Role::state || value.type.shape.empty();  // AdamW takes a root of it
        return positive ? fill_positive(value, id) : fill_small(value, id);
    };
    const std::vector<Array> one = evaluate(plain, fill), two = evaluate(fused, fill);
    REQUIRE(one.size() == two.size());
    int compared = 0;
    for (size_t id = 0; id < one.size(); ++id) {
        if (two[id].data.empty() || one[id].type.dtype != DType::f64) continue;
        INFO("%" << id << " " << plain.values[id].name);
        ++compared;
        for (int64_t i = 0; i < one[id].type.count(); ++i)
            CHECK(two[id].f64()[i] == Approx(one[id].f64()[i]).epsilon(1e-12).margin(1e-12));
    }
    CHECK(compared > 20);
}

}  // namespace

TEST_CASE("fuse: a perceptron's products take gelu, its slope and the biases' gradients along") {
    for (const DType compute : {DType::f32, DType::bf16}) {
        const Program plain = mlp(8, 4, 12, true, true, compute).program;
        const Program fused = fuse(plain);
        CHECK_NOTHROW(check_program(fused));
        CHECK(count(fused, "matmul_bias_gelu") == 1);
        CHECK(count(fused, "matmul_gelu_grad") == 1);
        CHECK(count(fused, "matmul_dw_bias") == 2);
        for (const char* gone : {"gelu", "gelu_grad", "matmul_dw"}) CHECK(count(fused, gone) == 0);
        CHECK(count(fused, "matmul") == 1);
        CHECK(fused.ops.size() == plain.ops.size() - 4);
        CHECK(find(fused, "matmul_bias_gelu").outputs.size() == 2);  // the gradient reads what is in front of the gelu
        const std::string text = print(fused);
        CHECK(print(parse(text)) == text);
        if (compute == DType::f32) same_numbers(plain, fused);
    }
}

TEST_CASE("fuse: what the gelu was applied to is kept where something reads it alone") {
    Program forward = mlp(8, 4, 12).program;
    std::erase_if(forward.ops, [](const Op& op) { return op.phase != Phase::forward; });
    forward.updates.clear();
    Program eval;
    eval.results = forward.results;
    eval.values = forward.values;
    eval.ops = forward.ops;
    const Program fused = fuse(eval);
    const Op& op = find(fused, "matmul_bias_gelu");
    CHECK(op.outputs.size() == 1);
    CHECK(op.attributes.flag("drop_pre"));
}

TEST_CASE("fuse: values with other readers in between, and sums of gradients, are left alone") {
    // The product is added to the output: its gradient is a sum, and it is read after the gelu, which does not matter.
    const Program twice = perceptron([](Model& m, ValueId pre, ValueId out) {
                              return m.op("add", {sum_of_squares(m, out), sum_of_squares(m, pre)});
                          }).program;
    same_numbers(twice, fuse(twice));
    CHECK(count(fuse(twice), "matmul_bias_gelu") == 1);
    CHECK(count(fuse(twice), "matmul_gelu_grad") == 1);

    // One weight for two products: gradients are added up in the kernels that make them, so these stay plain.
    Model shared;
    const ValueId x = shared.input("x", {6, 4}, {"batch", "embed"});
    const ValueId w = shared.param("w", {4, 4}, {"embed", ""}), b = shared.param("b", {4}, {""});
    const ValueId once = shared.op("matmul", {x, w, b});
    shared.train(sum_of_squares(shared, shared.op("matmul", {once, w, b})));
    CHECK(count(fuse(shared.program), "matmul_dw_bias") == 0);
    CHECK(count(fuse(shared.program), "matmul_dw") == 2);

    const auto loss = [](Model& m, ValueId, ValueId out) { return sum_of_squares(m, out); };
    const Program turned = perceptron(loss, {{"trans_b", true}}).program;
    CHECK(count(fuse(turned), "matmul_bias_gelu") == 1);
    CHECK(count(fuse(turned), "matmul_dw_bias") == 1);  // dw of the turned one is dy^T x
    same_numbers(turned, fuse(turned));
}

TEST_CASE("fuse: what somebody asked for by name or as a result is made") {
    const auto forward = [](auto ask) {
        Model m;
        const ValueId x = m.input("x", {6, 4}, {"batch", "embed"});
        const ValueId pre = m.op("matmul", {x, m.param("w", {4, 8}, {"embed", "mlp"}), m.param("b", {8}, {"mlp"})});
        m.build.result("y", m.op("gelu", {pre}), m.here());
        ask(m, pre);
        return fuse(m.program);
    };
    CHECK(find(forward([](Model&, ValueId) {}), "matmul_bias_gelu").attributes.flag("drop_pre"));
    for (const bool named : {false, true}) {
        const Program fused = forward([&](Model& m, ValueId pre) {
            named ? m.build.name(pre, "pre", m.here()) : m.build.result("pre", pre, m.here());
        });
        CHECK_NOTHROW(check_program(fused));
        CHECK(find(fused, "matmul_bias_gelu").outputs.size() == 2);
        CHECK(!find(fused, "matmul_bias_gelu").attributes.flag("drop_pre"));
    }
}

TEST_CASE("fuse: a device that lacks a fused kernel gets the plain ones") {
    const Program plain = mlp(8, 4, 12, true, true).program;
    for (const std::string lacks : {"matmul_bias_gelu", "matmul_gelu_grad", "matmul_dw_bias"}) {
        const Program fused = fuse(plain, [&](const Program&, const Op& op) { return op.kind != lacks; });
        CHECK_NOTHROW(check_program(fused));
        for (const std::string kind : {"matmul_bias_gelu", "matmul_gelu_grad", "matmul_dw_bias"})
            CHECK((count(fused, kind) == 0) == (kind == lacks));
        same_numbers(plain, fused);
    }
    CompileOptions options;
    std::vector<Shape> asked;
    options.runs = [&](const KernelSpec& spec) {
        if (spec.op == "matmul_bias_gelu") asked.push_back(spec.outputs[0].shape);
        return false;
    };
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    const Lowered lowered = compile(m.program, Mesh({{"dp", 2}}), options);
    for (const KernelSpec& kernel : lowered.plan.classes[0].kernels)
        CHECK((kernel.op == "matmul_dw" || kernel.op.rfind("matmul_", 0) != 0));
    REQUIRE(asked.size() == 1);
    CHECK(asked[0] == Shape{4, 12});  // as a rank would run it
}

TEST_CASE("fuse: what is made again is fused, too, and stays in B") {
    for (const Names& kinds : {Names{}, Names{"gelu"}}) {
        Model m = mlp(8, 4, 12);
        const Program without = fuse(distribute(m.program, Mesh()));
        m.program.recompute("mlp", {}, kinds);
        const Program plain = distribute(m.program, Mesh());
        const Program fused = fuse(plain);
        CHECK_NOTHROW(check_program(fused));
        CHECK(count(fused, "matmul_gelu_grad") == 1);
        CHECK(count(fused, "matmul_bias_gelu") == (kinds.empty() ? 2 : 1));
        CHECK(count(fused, "gelu") == (kinds.empty() ? 0 : 1));
        same_numbers(plain, fused);
    }
}

TEST_CASE("recompute: what is made again by one mark reads what another makes again") {
    Model m = deep(2, 4, 8);
    for (const char* scope : {"layers.0", "layers.1"}) {
        m.program.recompute(scope, {}, {"rmsnorm"});
        m.program.recompute(scope, {}, {"matmul"});
    }
    const Program again = distribute(m.program, Mesh());
    CHECK_NOTHROW(check_program(again));
    int copies = 0;
    for (const Op& op : again.ops) {
        if (op.phase != Phase::backward || op.kind != "matmul" || op.forward == none) continue;
        const Op& norm = again.op(again.value(op.inputs[0]).op);
        if (norm.kind != "rmsnorm") continue;
        CHECK(norm.phase == Phase::backward);
        ++copies;
    }
    CHECK(copies == 2);
    Verifying how;
    how.options.steps = 2;
    CHECK(verify_plan(m.program, compile(m.program, Mesh()), how).passed());
}

TEST_CASE("fuse: a norm adds the residual in front of it, its gradient what comes round it") {
    for (const std::string norm : {"layernorm", "rmsnorm"}) {
        for (const DType compute : {DType::f32, DType::bf16}) {
            const Program plain = residual(
                                      norm,
                                      [](Model& m, ValueId sum, ValueId y) {
                                          const ValueId w = m.param("out", {4, 4}, {"", ""});
                                          return sum_of_squares(m, m.op("add", {sum, m.op("matmul", {y, w})}));
                                      },
                                      compute)
                                      .program;
            const Program fused = fuse(plain);
            CHECK_NOTHROW(check_program(fused));
            CHECK(with_residual(plain, norm) == 0);
            CHECK(with_residual(fused, norm) == 2);
            CHECK(count(plain, "add") - count(fused, "add") == 2);
            CHECK(fused.ops.size() == plain.ops.size() - 2);
            const std::string text = print(fused);
            CHECK(print(parse(text)) == text);
            if (compute == DType::f32) same_numbers(plain, fused);
        }
    }
    const Program decoder = block(4, 6, 2, 4, 7, true).program;
    CHECK(with_residual(fuse(decoder), "rmsnorm") == 4);
    same_numbers(decoder, fuse(decoder));
}

TEST_CASE("fuse: sums that are no residual of a norm stay") {
    const auto fused = [](auto use) { return fuse(residual("rmsnorm", use).program); };
    const auto joined = [](const Program& program) { return with_residual(program, "rmsnorm"); };
    // Nothing else needs the sum: its gradient is the norm's alone.
    CHECK(joined(fused([](Model& m, ValueId, ValueId y) { return sum_of_squares(m, y); })) == 1);
    // A sum that somebody reads before the norm is made before it, and what comes back from there is made after the
    // norm's own gradient.
    Model early;
    {
        const ValueId x = early.input("x", {6, 4}, {"batch", "embed"});
        const ValueId h = early.op("matmul", {x, early.param("w", {4, 4}, {"embed", ""})});
        const ValueId sum = early.op("add", {h, early.op("gelu", {h})});
        const ValueId first = early.op("matmul", {sum, early.param("v", {4, 4}, {"", ""})});
        const ValueId y = early.build.add("rmsnorm", {sum, early.param("gain", {4}, {""})}, {}, early.here())[0];
        early.train(early.op("add", {sum_of_squares(early, first), sum_of_squares(early, y)}));
    }
    CHECK_NOTHROW(check_program(fuse(early.program)));
    CHECK(joined(fuse(early.program)) == 0);
    same_numbers(early.program, fuse(early.program));

    // Two products that nothing else reads: the second one adds to the first one's result in its kernel.
    Model parallel;
    {
        const ValueId x = parallel.input("x", {6, 4}, {"batch", "embed"});
        const ValueId a = parallel.op("matmul", {x, parallel.param("a", {4, 4}, {"embed", ""})});
        const ValueId b = parallel.op("matmul", {x, parallel.param("b", {4, 4}, {"embed", ""})});
        const ValueId sum = parallel.op("add", {parallel.op("add", {x, a}), b});
        const ValueId gain = parallel.param("gain", {4}, {""});
        parallel.train(sum_of_squares(parallel, parallel.build.add("rmsnorm", {sum, gain}, {}, parallel.here())[0]));
    }
    CHECK(joined(fuse(parallel.program)) == 0);

    Model wide;  // one row for all
    const ValueId x = wide.input("x", {6, 4}, {"batch", "embed"}), gain = wide.param("gain", {4}, {"embed"});
    const ValueId row = wide.op("add", {x, wide.param("position", {4}, {"embed"})});
    wide.train(sum_of_squares(wide, wide.build.add("rmsnorm", {row, gain}, {}, wide.here())[0]));
    CHECK(joined(fuse(wide.program)) == 0);

    // A gradient that somebody asked for by name is made; the forward pass may join.
    Program named = block(4, 6, 2, 4, 7, true).program;
    for (const Op& op : named.ops)
        if (op.kind == "rmsnorm_grad") named.value(op.outputs[0]).name = "dx" + std::to_string(op.outputs[0]);
    CHECK(joined(fuse(named)) == 2);
    const Program decoder = block(4, 6, 2, 4, 7, true).program;
    CHECK(joined(fuse(decoder, [](const Program&, const Op& op) { return op.inputs.size() < 5; })) == 2);
    CHECK(joined(fuse(decoder, [](const Program&, const Op& op) { return op.kind != "rmsnorm"; })) == 2);
}

TEST_CASE("fuse: norms with residuals on several ranks give what one rank gives", "[slow]") {
    Model m = block(4, 8, 2, 4, 8, true, true);
    m.split_names({{"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
    const Lowered one = compile(m.program, Mesh().with_microbatches(2));
    for (const std::vector<Axis>& axes : {std::vector<Axis>{{"tp", 2}}, {{"dp", 2}, {"tp", 2}}}) {
        const Lowered many = compile(m.program, Mesh(axes).with_microbatches(2));
        const auto& kernels = many.plan.classes[0].kernels;
        for (const size_t inputs : {3, 5})
            CHECK(std::any_of(kernels.begin(), kernels.end(), [&](const KernelSpec& k) {
                return k.op.rfind("rmsnorm", 0) == 0 && k.inputs.size() == inputs;
            }));
        CHECK(difference(run_steps(many, 3, false).values, run_steps(one, 3, false).values, 2e-4) == "");
        Verifying how;
        how.options.steps = 3;
        const VerifyReport report = verify_plan(m.program, many, how);
        INFO(report.text(many.plan, how.options));
        CHECK(report.passed());
    }
}

TEST_CASE("fuse: sums and norms that are made again are joined, too") {
    for (const Names& kinds : {Names{}, Names{"add"}, Names{"rmsnorm"}}) {
        Model m = block(4, 6, 2, 4, 7, true);
        m.program.recompute("mlp", {}, kinds);
        m.program.recompute("attn", {}, kinds);
        const Program plain = distribute(m.program, Mesh());
        const Program fused = fuse(plain);
        CHECK_NOTHROW(check_program(fused));
        CHECK(with_residual(fused, "rmsnorm") >= 4);
        same_numbers(plain, fused);
    }
}

TEST_CASE("fuse: columns and rows of a perceptron on two ranks give what one rank gives", "[slow]") {
    for (const DType compute : {DType::f32, DType::bf16}) {
        Model m = mlp(8, 4, 12, true, true, compute);
        m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
        const Lowered one = compile(m.program, Mesh().with_microbatches(2));
        for (const std::vector<Axis>& axes : {std::vector<Axis>{{"tp", 2}}, {{"dp", 2}, {"tp", 2}}}) {
            const Lowered many = compile(m.program, Mesh(axes).with_microbatches(2));
            const auto& kernels = many.plan.classes[0].kernels;
            for (const char* kind : {"matmul_bias_gelu", "matmul_gelu_grad", "matmul_dw_bias"})
                CHECK(std::any_of(kernels.begin(), kernels.end(), [&](const KernelSpec& k) { return k.op == kind; }));
            if (compute == DType::f32)
                CHECK(difference(run_steps(many, 3, false).values, run_steps(one, 3, false).values, 2e-4) == "");
            Verifying how;
            how.options.steps = 3;
            const VerifyReport report = verify_plan(m.program, many, how);
            INFO(report.text(many.plan, how.options));
            CHECK(report.passed());
        }
    }
}
