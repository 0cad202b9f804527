// Types of operands: what OpDef::types says is held to by inference, by registration and by both devices.
#include <catch2/catch.hpp>

#include "../plugins/device/cpu/resolve.h"
#include "../plugins/device/cuda/resolve.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/signature.h"
#include "orrery/kernel.h"

using namespace orrery;

namespace {

/// Records one op of new inputs a, b, c ... and says why it may not be.
struct Recorder {
    Program program;
    Builder build{program};

    std::string fails(std::string_view kind, const std::vector<DType>& types, const Shape& shape,
                      Attributes attributes = {}) {
        std::vector<ValueId> inputs;
        for (const DType type : types)
            inputs.push_back(build.input(std::string(1, static_cast<char>('a' + program.values.size())), {type, shape},
                                         {}, {"", "a.lua", 1, 0}));
        try {
            build.add(kind, inputs, std::move(attributes), {"", "a.lua", 2, 0});
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }
};

std::string by_cpu(const KernelSpec& spec) {
    try {
        cpu_device::resolve(spec, kernels::cpu::table(), false);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

std::string by_cuda(const KernelSpec& spec) {
    try {
        cuda_device::spec_of(spec);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("every op has types that agree with its operands, but collectives have none") {
    for (const OpDef* def : own_ops()) {
        INFO(def->name);
        CHECK(def->collective.has_value() == def->types.empty());
        if (!def->collective) CHECK(problem_of_types(*def).empty());
    }
    const auto problem = [](std::vector<std::string_view> operands, std::string_view types) {
        OpDef def{.name = "tide", .operands = std::move(operands), .types = types};
        return problem_of_types(def);
    };
    CHECK(problem({"x", "g?"}, "f F? -> f s?").empty());
    CHECK(problem({"x..."}, "a... -> a").empty());
    CHECK(problem({"x", "a..."}, "f a... -> f").empty());
    CHECK(problem({"x", "g?", "b?"}, "f F? f? -> f").empty());
    CHECK(problem({"x", "g?", "b??", "c?"}, "f i? i?? f? -> f").empty());
    CHECK(problem({}, "-> n").empty());
    CHECK(problem({"x"}, "") ==
          "the op tide lacks types: a letter for each operand and each output, such as \"f -> f\"; orrery/op.h lists "
          "them");
    CHECK(
        problem({"x", "bias?"}, "f f -> f") ==
        "the op tide has operands (x, bias?) that do not match its types \"f f -> f\": expected a letter of fFa*nsiubc "
        "for each operand, with its \"?\" or \"...\", then \"->\" and a letter for each output; \"?\", and one "
        "\"...\" of the inputs, come last");
    for (const char* types : {"f", "f ->", "f f", "f f -> f", "f? -> f", "f... -> f", "x -> f", "ff -> f", "f -> f...",
                              "f -> f?", "f -> f f? f", "f -> f -> f"}) {
        INFO(types);
        CHECK_FALSE(problem({"x"}, types).empty());
    }
    // What may be absent or repeated stands last: else nobody knows whose operand one is.
    CHECK_FALSE(problem({"x", "b?", "y"}, "f f? f -> f").empty());
    CHECK_FALSE(problem({"x...", "y"}, "f... f -> f").empty());
    CHECK_FALSE(problem({"x...", "y..."}, "f... f... -> f").empty());
    CHECK_FALSE(problem({"x?", "y..."}, "f? f... -> f").empty());
    CHECK_FALSE(problem({"x...", "y?"}, "f... f? -> f").empty());
    CHECK_FALSE(problem({"x", "y??"}, "f f?? -> f").empty());  // given together with what
}

TEST_CASE("operands that are given together are there together, wherever others may be absent") {
    const auto by = [](size_t operands) {
        const TensorType f{DType::f32, {2, 6, 2, 4}}, lse{DType::f32, {2, 2, 6}}, i{DType::i32, {2, 6}};
        KernelSpec spec{"attention_grad", {}, {f, f, f, f, lse, f}, {f, f, f}};
        if (operands >= 10) spec.inputs.insert(spec.inputs.end(), 4, i);
        if (operands % 2 != 0) spec.inputs.push_back(lse);
        spec.inputs.resize(operands, i);
        return wrong_operands(spec, "");
    };
    for (const size_t operands : {6, 7, 10, 11}) CHECK(by(operands).empty());
    for (const size_t operands : {8, 9, 12})
        CHECK(by(operands).find("got " + std::to_string(operands)) != std::string::npos);
    KernelSpec wrong{"attention_grad", {}, {}, {}};
    const TensorType f{DType::f32, {2, 6, 2, 4}};
    wrong.inputs.assign(7, f);
    wrong.outputs.assign(3, f);
    wrong.inputs[6] = {DType::i32, {2, 6}};
    CHECK(wrong_operands(wrong, "").find("dlse is i32[2,6], expected f32") != std::string::npos);
}

TEST_CASE_METHOD(Recorder, "operands of the wrong type are refused where an op is recorded, letter by letter") {
    const Shape rows{2, 4}, none{};
    const auto said = [](const std::string& text) { return Catch::Equals("a.lua:2: " + text); };
    CHECK_THAT(fails("gelu", {DType::i32}, rows),
               said("gelu: a i32[2,4] (a.lua:1) is not of a floating-point type; cast it first"));
    CHECK_THAT(fails("softmax_grad", {DType::f32, DType::bf16}, rows),
               said("softmax_grad: types differ: b f32[2,4] (a.lua:1) and c bf16[2,4] (a.lua:1); cast one of them"));
    CHECK_THAT(fails("sumsq", {DType::u8}, rows),
               said("sumsq: d u8[2,4] (a.lua:1) is not of a floating-point type; cast it first"));
    CHECK_THAT(fails("concat", {DType::i32, DType::f32}, rows, {{"dim", int64_t{0}}}),
               said("concat: types differ: e i32[2,4] (a.lua:1) and f f32[2,4] (a.lua:1); cast one of them"));
    CHECK_THAT(fails("less", {DType::u8, DType::u8}, rows),
               said("less: g u8[2,4] (a.lua:1) is neither i32 nor of a floating-point type; cast it first"));
    CHECK_THAT(fails("less", {DType::i32, DType::f32}, rows),
               said("less: types differ: i i32[2,4] (a.lua:1) and j f32[2,4] (a.lua:1); cast one of them"));
    CHECK_THAT(fails("cross_entropy_loss", {DType::f32, DType::bf16, DType::f32, DType::i32}, rows),
               said("cross_entropy_loss: l bf16[2,4] (a.lua:1) is not f32; cast it to f32"));
    CHECK_THAT(fails("one_hot", {DType::f32}, rows, {{"size", int64_t{3}}}),
               said("one_hot: o f32[2,4] (a.lua:1) is not i32; cast it to i32"));
    CHECK_THAT(fails("random", {DType::i32}, none, {{"shape", Shape{4}}}),
               said("random: p i32[] (a.lua:1) is not u32; cast it to u32"));
    CHECK_THAT(fails("select", {DType::f32, DType::f32, DType::f32}, rows),
               said("select: q f32[2,4] (a.lua:1) is not u8; cast it to u8"));
    CHECK(fails("cast", {DType::u32}, rows, {{"dtype", std::string("f32")}}).empty());
    CHECK_THAT(fails("sum", {DType::f32}, rows, {{"dtype", std::string("i32")}}),
               said("sum: output 0 would be i32, expected a floating-point type; give another dtype"));
    CHECK_THAT(fails("pack", {DType::u8}, rows, {{"bits", int64_t{4}}}),
               said("pack: w u8[2,4] (a.lua:1) is not i8; cast it to i8"));
}

TEST_CASE_METHOD(Recorder, "an inference that disagrees with the op's types is refused") {
    const ValueId x = build.input("x", {DType::bf16, {4}}, {}, {"", "a.lua", 1, 0});
    const auto refused = [&](std::vector<Typed> (*inference)(Infer&), const std::string& why) {
        const OpDef def{.name = "tide", .operands = {"x"}, .types = "f -> f", .infer = inference};
        Attributes none;
        const std::vector<ValueId> inputs{x};
        CHECK_THROWS_WITH(infer(def, program, inputs, none, {"", "a.lua", 2, 0}), "a.lua:2: tide: " + why);
    };
    refused(
        [](Infer&) {
            return std::vector<Typed>{{{DType::f32, {4}}, {""}}};
        },
        "output 0 would be f32, expected bf16 as x (f -> f)");
    refused([](Infer& at) { return std::vector<Typed>(2, at.typed(0)); },
            "its infer function returned 2 outputs, but its types are f -> f");
}

TEST_CASE("both devices refuse operands that are not those of the op's definition, and say which") {
    const TensorType x{DType::bf16, {4, 8}}, gain{DType::f32, {8}}, row{DType::f32, {4}};
    const KernelSpec good{"layernorm", {{"eps", 1e-5}}, {x, gain, gain, x}, {x, row, row, x}};
    const auto refused = [&](void (*change)(KernelSpec&), const std::string& why) {
        KernelSpec spec = good;
        change(spec);
        CHECK(by_cpu(spec) == "device cpu: op layernorm: " + why);
        CHECK(by_cuda(spec) == "device cuda: op layernorm: " + why);
    };
    CHECK(by_cpu(good).empty());
    CHECK(by_cuda(good).empty());
    refused([](KernelSpec& s) { s.inputs[1].dtype = DType::i32; },
            "gain is i32[8], expected a floating-point type (f F F f? -> F s s f?)");
    refused([](KernelSpec& s) { s.inputs[3].dtype = DType::f32; },
            "residual is f32[4,8], expected bf16 as x (f F F f? -> F s s f?)");
    refused([](KernelSpec& s) { s.outputs[2].dtype = DType::bf16; },
            "output 2 is bf16[4], expected f32 (f F F f? -> F s s f?)");
    refused([](KernelSpec& s) { s.outputs.resize(2); }, "got 2 outputs, expected 3 to 4 (f F F f? -> F s s f?)");
    refused([](KernelSpec& s) { s.inputs.clear(); }, "got 0 operands, expected (x, gain, bias, residual?)");
    refused([](KernelSpec& s) { s.attributes.set("accumulate", true); }, "it cannot accumulate");

    const TensorType wide{DType::f64, {4, 8}}, whole{DType::i64, {4, 8}};
    const KernelSpec sum{"add", {}, {wide, wide}, {wide}}, moved{"reshape", {}, {whole}, {whole}};
    CHECK(by_cpu(sum) == "device cpu: op add: a is f64[4,8]: f64 needs device.cpu.reference = true");
    CHECK(by_cuda(sum) == "device cuda: op add: a is f64[4,8]: f64 is for the reference kernels of the CPU alone");
    CHECK(wrong_operands(sum).empty());
    CHECK(by_cpu({"all_reduce", {}, {wide}, {wide}}) == "device cpu: op all_reduce: it has no kernel");
    CHECK(by_cuda({"all_reduce", {}, {wide}, {wide}}) == "device cuda: op all_reduce: it has no kernel");
    CHECK(by_cpu({"neg", {}, {wide}, {}}) == "device cpu: op neg: got 0 outputs, expected 1 (f -> f)");
    CHECK(by_cpu(moved).empty());
    CHECK(by_cuda(moved).empty());
    CHECK(by_cpu({"reshape", {}, {whole}, {wide}}) ==
          "device cpu: op reshape: output 0 is f64[4,8], expected i64 as x (a -> a)");
    CHECK(by_cpu({"add", {}, {whole, whole}, {whole}}) ==
          "device cpu: op add: a is i64[4,8], expected a floating-point type (F F -> F)");
    CHECK(by_cpu({"concat", {{"dim", int64_t{0}}}, {wide, whole}, {{DType::f64, {8, 8}}}}) ==
          "device cpu: op concat: x 1 is i64[4,8], expected f64 as x 0 (a... -> a)");
}
