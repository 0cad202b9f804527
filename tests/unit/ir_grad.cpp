// The shape of backward programs: what is there, and what must not be.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "compile/passes/differentiate.h"
#include "compile/passes/precision.h"
#include "golden.h"
#include "interpreter.h"
#include "ir/check_program.h"
#include "ir/describe.h"
#include "ir/flops.h"
#include "ir/print.h"
#include "ir_programs.h"

using namespace orrery;

namespace {

std::map<std::string, int> kinds(const Program& program, Phase phase) {
    std::map<std::string, int> count;
    for (const Op& op : program.ops) count[op.kind] += op.phase == phase;
    std::erase_if(count, [](const auto& item) { return item.second == 0; });
    return count;
}

Program differentiated(Program program) {
    differentiate(program, *program.result("loss_sum"));
    check_program(program);
    return program;
}

std::string message(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

}  // namespace

TEST_CASE("the backward pass of an mlp is the golden one") {
    const Program program = differentiated(test::mlp());
    test::check_golden("ir_mlp.txt", print(program));
    // The loss' seed of 1 is folded: no full, no scale by 1; no gradient of x and y.
    CHECK(kinds(program, Phase::backward) ==
          std::map<std::string, int>{{"scale", 1}, {"matmul", 1}, {"matmul_dw", 2}, {"relu_grad", 1}, {"sum", 1}});
}

TEST_CASE("a decoder's backward pass holds nothing that is not needed") {
    for (DType compute : {DType::f32, DType::bf16}) {
        Program program = test::decoder({.layers = 1});
        set_precision(program, compute);
        program = differentiated(std::move(program));
        test::check_golden(compute == DType::f32 ? "ir_decoder_f32.txt" : "ir_decoder_bf16.txt", print(program));
        const std::map<std::string, int> expected{
            {"add", 6},  // x twice in each half of the layer: 2; q, k, v: 2; gate, up: 1; the tied table: 1
            {"attention_grad", 1},
            {"embedding_grad", 1},
            {"matmul", 8},
            {"matmul_dw", 8},
            {"reshape", 4},
            {"rmsnorm_grad", 3},
            {"rope", 2},
            {"swiglu_grad", 1}};
        CHECK(kinds(program, Phase::backward) == expected);
        for (ValueId param : program.params()) {
            INFO(describe(program, param));
            const ValueId grad = program.grad_of(param);
            REQUIRE(grad != none);
            CHECK(program.value(grad).type.dtype == DType::f32);
            CHECK(program.value(grad).name == program.value(param).name + ".grad");
        }
        for (const Op& op : program.ops) {
            if (op.phase != Phase::backward) continue;
            REQUIRE(op.forward != none);
            CHECK(op.scope == program.op(op.forward).scope);
        }
    }
}

TEST_CASE("cross entropy makes dlogits itself, over the logits") {
    const Program program = differentiated(test::decoder({}));
    const auto op =
        std::find_if(program.ops.begin(), program.ops.end(), [](const Op& o) { return o.kind == "cross_entropy"; });
    CHECK(op->attributes.flag("grad"));
    REQUIRE(op->outputs.size() == 3);
    CHECK(program.value(op->outputs[2]).type == program.value(op->inputs[0]).type);
    CHECK(op_def("cross_entropy").in_place == std::vector<std::pair<int, int>>{{2, 0}});
}

TEST_CASE("bf16 casts each weight once and keeps statistics, gains and gradients f32") {
    Program program = test::decoder({.layers = 2});
    set_precision(program, DType::bf16);
    check_program(program);
    std::map<ValueId, int> casts;
    for (const Op& op : program.ops) {
        if (op.kind == "cast") ++casts[op.inputs[0]];
        if (op.kind == "rmsnorm") CHECK(program.value(op.inputs[1]).type.dtype == DType::f32);
        if (op.kind == "rmsnorm") CHECK(program.value(op.outputs[1]).type.dtype == DType::f32);
        if (op.kind == "add") CHECK(program.value(op.outputs[0]).type.dtype == DType::bf16);
        if (op.kind == "cross_entropy") CHECK(program.value(op.inputs[0]).type.dtype == DType::bf16);
        if (op.kind == "cross_entropy") CHECK(program.value(op.outputs[0]).type.dtype == DType::f32);
    }
    for (ValueId param : program.params()) {
        const bool matrix = program.value(param).type.shape.size() >= 2;
        CHECK(casts[param] == (matrix ? 1 : 0));
        CHECK(program.value(param).type.dtype == DType::f32);
        if (matrix) CHECK(program.find(program.value(param).name + ".bf16").has_value());
    }
    const Program both = differentiated(program);
    CHECK(kinds(both, Phase::backward)["cast"] == 0);
}

TEST_CASE("bf16 casts the residual of a norm, not its gain") {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", {DType::f32, {4, 6}}, {}, {}), w = b.param("w", {DType::f32, {6, 6}}, {}, {}, {});
    const ValueId gain = b.param("gain", {DType::f32, {6}}, {}, {}, {});
    const ValueId bias = b.param("bias", {DType::f32, {6}}, {}, {}, {});
    const ValueId h = b.one("matmul", {x, w}, {}, {});
    b.result("y", b.add("rmsnorm", {h, gain, x}, {}, {})[0], {});
    b.result("z", b.add("layernorm", {h, gain, bias, x}, {}, {})[0], {});
    set_precision(p, DType::bf16);
    check_program(p);
    for (const Op& op : p.ops) {
        if (op.kind != "rmsnorm" && op.kind != "layernorm") continue;
        CHECK(p.value(op.inputs.front()).type.dtype == DType::bf16);
        CHECK(p.value(op.inputs.back()).type.dtype == DType::bf16);
        for (size_t i = 1; i + 1 < op.inputs.size(); ++i) CHECK(p.value(op.inputs[i]).type.dtype == DType::f32);
    }
}

TEST_CASE("bf16 casts biases of products and leaves f32 programs alone") {
    Program program = test::mlp();
    Program same = program;
    set_precision(same, DType::f32);
    CHECK(test::difference(program, same) == "");
    set_precision(program, DType::bf16);
    CHECK(program.find("up.b.bf16").has_value());
    program = differentiated(std::move(program));
    for (ValueId param : program.params()) CHECK(program.value(program.grad_of(param)).type.dtype == DType::f32);
    CHECK(kinds(program, Phase::backward)["cast"] == 0);
    CHECK(message([&] { set_precision(program, DType::bf16); }).find("before the program is differentiated") !=
          std::string::npos);
}

TEST_CASE("a weight that is reshaped and broadcast gets its gradient in f32, without a cast") {
    Program p;
    Builder b(p);
    const ValueId tokens = b.input("tokens", {DType::i32, {3, 5}}, {"batch", "seq"}, {});
    const ValueId table = b.param("table", {DType::f32, {11, 4}}, {"vocab", "embed"}, {}, {});
    const ValueId positions = b.param("positions", {DType::f32, {5, 4}}, {"positions", "embed"}, {}, {});
    const ValueId renamed = b.one("reshape", {positions}, {{"shape", Shape{5, 4}}}, {}, {{"seq", "embed"}});
    const ValueId x = b.one("add", {b.one("embedding", {tokens, table}, {}, {}), renamed}, {}, {});
    b.result("loss_sum", b.one("sumsq", {x}, {}, {}), {});
    set_precision(p, DType::bf16);
    p = differentiated(std::move(p));
    CHECK(kinds(p, Phase::backward) == std::map<std::string, int>{{"scale", 1}, {"sum", 1}, {"embedding_grad", 1}});
    CHECK(p.value(p.grad_of(positions)).dims == p.value(positions).dims);
}

namespace {

double loss_of(const Program& program, const std::vector<test::Array>& sources) {
    const auto values =
        test::evaluate(program, [&](const Value&, ValueId id) { return sources[static_cast<size_t>(id)]; });
    return values[static_cast<size_t>(*program.result("loss_sum"))].f64()[0];
}

// Some elements of every param's gradient against central differences of the program before differentiation.
void check_model(const Program& forward) {
    const Program full = differentiated(forward);
    std::vector<test::Array> sources(forward.values.size());
    for (size_t i = 0; i < sources.size(); ++i) {
        if (forward.values[i].role != Role::temporary)
            sources[i] = test::fill_small(forward.values[i], static_cast<ValueId>(i), 7);
    }
    const auto values =
        test::evaluate(full, [&](const Value&, ValueId id) { return sources[static_cast<size_t>(id)]; });
    for (ValueId param : forward.params()) {
        INFO(describe(forward, param));
        const test::Array& grad = values[static_cast<size_t>(full.grad_of(param))];
        double norm = 0;
        for (int64_t i = 0; i < grad.type.count(); ++i) norm = std::max(norm, std::abs(grad.f64()[i]));
        for (int64_t i = 0; i < grad.type.count(); i += 1 + grad.type.count() / 5) {
            double& x = sources[static_cast<size_t>(param)].f64()[i];
            const double middle = x;
            auto at = [&](double offset) {
                x = middle + offset;
                const double loss = loss_of(forward, sources);
                x = middle;
                return loss;
            };
            constexpr double h = 1e-4;
            const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
            CHECK(std::abs(grad.f64()[i] - slope) <= 1e-6 * norm + 1e-9);
        }
    }
}

}  // namespace

TEST_CASE("gradients of whole models equal central differences, in both precisions' programs") {
    check_model(test::mlp());
    Program program = test::decoder({});
    check_model(program);
    set_precision(program, DType::bf16);  // the interpreter computes in f64 whatever the program says
    check_model(program);
}

TEST_CASE("what cannot be differentiated says why") {
    Program p;
    Builder b(p);
    const ValueId x = b.input("x", {DType::f32, {3}}, {"embed"}, {"", "m.lua", 1, 0});
    const ValueId w = b.param("w", {DType::f32, {3}}, {"embed"}, {}, {"", "m.lua", 2, 0});
    const ValueId y = b.one("mul", {x, w}, {}, {"", "m.lua", 3, 0});
    const ValueId alone = b.one("sumsq", {x}, {}, {"", "m.lua", 4, 0});
    CHECK(message([&] { differentiate(p, y); }) ==
          "m.lua:3: the loss must be an f32 scalar, got %2 (mul) f32[embed=3] (m.lua:3); sum it");
    CHECK(message([&] { differentiate(p, alone); }).find("does not depend on any param") != std::string::npos);
    const auto lse = b.add("rmsnorm", {w, w}, {}, {"", "m.lua", 5, 0});
    const ValueId loss = b.one("sum", {lse[1]}, {}, {"", "m.lua", 6, 0});
    CHECK(message([&] { differentiate(p, loss); }).find("no gradient flows through the result \"rstd\"") !=
          std::string::npos);
    const auto codes = b.add("quantize", {w}, {{"block", int64_t{2}}}, {"", "m.lua", 7, 0});
    const ValueId decoded = b.one("dequantize", codes, {{"block", int64_t{2}}}, {"", "m.lua", 8, 0});
    const ValueId of_codes = b.one("sum", {decoded}, {}, {"", "m.lua", 9, 0});
    CHECK(message([&] { differentiate(p, of_codes); }) ==
          "m.lua:8: the loss depends on dequantize %9 (dequantize), m.lua:8, an op that has no gradient");
}

TEST_CASE("flops follow the conventions") {
    const test::DecoderShape s{
        .layers = 2, .batch = 2, .seq = 8, .embed = 12, .heads = 3, .kv_heads = 3, .mlp = 16, .vocab = 11};
    Program program = test::decoder(s);
    const int64_t tokens = s.batch * s.seq;
    const int64_t weights = s.vocab * s.embed + s.layers * (4 * s.embed * s.embed + 3 * s.embed * s.mlp);
    const int64_t attention = s.layers * 12 * s.batch * s.seq * s.seq * s.embed / 2;
    CHECK(model_flops(program) == static_cast<double>(6 * weights * tokens + attention));
    const auto full = static_cast<double>(6 * weights * tokens + 2 * attention);  // as PaLM and Megatron-LM count it
    CHECK(model_flops(program, MaskedPairs::counted) == full);
    program = differentiated(std::move(program));
    int64_t products = 0;
    for (const Op& op : program.ops) {
        if (op.kind.starts_with("matmul")) products += flops(program, op);
    }
    CHECK(products == 6 * weights * tokens);
}
