// Products of 8-bit operands: the numbers, which products they are, which operands, and what is kept.
#include "compile/passes/precision.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/check_program.h"
#include "ir/flops.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout_models.h"
#include "orrery/half.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

std::map<std::string, int> kinds(const Program& program) {
    std::map<std::string, int> counts;
    for (const Op& op : program.ops) ++counts[op.kind];
    return counts;
}

/// As it is lowered.
Program lowered(const Program& program, const Mesh& mesh = Mesh()) { return compile(program, mesh).plan.program; }

const Op& maker(const Program& program, ValueId id) { return program.op(program.value(id).op); }

}  // namespace

TEST_CASE("floats of 8 bits: every one is an f32 and comes back, what lies between goes to the nearest") {
    for (const bool wide : {false, true}) {
        const auto widen = [&](int bits) {
            return wide ? widen_f8e5m2(static_cast<uint8_t>(bits)) : widen_f8e4m3(static_cast<uint8_t>(bits));
        };
        const auto narrow = [&](float x) { return wide ? narrow_f8e5m2(x) : narrow_f8e4m3(x); };
        const int last = wide ? 0x7b : 0x7e;
        for (int bits = 0; bits <= last; ++bits) {
            CHECK(narrow(widen(bits)) == bits);
            CHECK(narrow(-widen(bits)) == (bits | 0x80));
            if (bits == last) break;
            const float low = widen(bits), high = widen(bits + 1), half = (low + high) / 2;
            CHECK(low < high);
            CHECK(narrow(half) == bits + bits % 2);  // ties to even
            CHECK(narrow(std::nextafter(half, low)) == bits);
            CHECK(narrow(std::nextafter(half, high)) == bits + 1);
        }
        CHECK(widen(last) == (wide ? 57344.0f : 448.0f));
        CHECK(narrow(1e30f) == last);
        CHECK(narrow(-HUGE_VALF) == (last | 0x80));
        CHECK(std::isnan(widen(0x7f)));
        CHECK(std::isnan(widen(narrow(std::nanf("")))));
    }
    CHECK(widen_f8e4m3(1) == std::ldexp(1.0f, -9));
    CHECK(widen_f8e5m2(1) == std::ldexp(1.0f, -16));
    CHECK(std::isinf(widen_f8e5m2(0x7c)));
    CHECK(size_of(DType::f8e4m3) == 1);
    CHECK(parse_dtype("f8e5m2") == DType::f8e5m2);
    CHECK(name_of(DType::f8e4m3) == "f8e4m3");
}

TEST_CASE("fp8 is linear products, forward and backward; the head is not") {
    const Model m = block(4, 16, 4, 16, 32, false, true, DType::f8e4m3);
    const Model plain = block(4, 16, 4, 16, 32, false, true, DType::bf16);
    int marked = 0;
    for (const Op& op : m.program.ops) marked += op.attributes.flag("f8");
    CHECK(marked == 6);  // q, k, v, o, up, down
    CHECK(print(parse(print(m.program), "p.ir")) == print(m.program));
    const Program made = lowered(m.program);
    check_program(made);
    std::map<std::string, int> counts = kinds(made), before = kinds(lowered(plain.program));
    CHECK(counts["matmul_quantized"] == 12);  // each and its input's gradient
    CHECK(counts["matmul_dw_quantized"] == 6);
    CHECK(counts["matmul"] == before["matmul"] - 12);  // the head's
    CHECK(counts["matmul_dw"] == before["matmul_dw"] - 6);
    // Six weights, the inputs of q, k and v together, of o, up and down, and six gradients.
    CHECK(counts["quantize"] == 6 + 4 + 6);
    for (const Op& op : made.ops) {
        if (op.kind != "matmul_quantized" && op.kind != "matmul_dw_quantized") continue;
        INFO(print(made));
        int gradients = 0;
        for (size_t i = 0; i < 2; ++i) {
            const Op& cast = maker(made, op.inputs[i]);
            CHECK(cast.kind == "quantize");
            CHECK(cast.outputs[1] == op.inputs[i + 2]);
            gradients += made.value(op.inputs[i]).type.dtype == DType::f8e5m2;
            const bool backward = maker(made, cast.inputs[0]).phase == Phase::backward;
            CHECK((made.value(op.inputs[i]).type.dtype == DType::f8e5m2) == backward);
        }
        CHECK(gradients == (op.phase == Phase::backward));
        CHECK(made.value(op.outputs[0]).type.dtype == (op.kind == "matmul_quantized" ? DType::bf16 : DType::f32));
    }
    CHECK(model_flops(m.program) == model_flops(plain.program));
    // Norms read and give 16 bits, attention too.
    for (const Op& op : made.ops)
        if (op.kind == "attention" || op.kind == "rmsnorm") CHECK(size_of(made.value(op.inputs[0]).type.dtype) == 2);
}

TEST_CASE("fp8 keeps activations as 8 bits, and recomputes as it computed") {
    const auto peak = [](DType compute, bool again) {
        Model m = block(16, 32, 4, 16, 32, false, false, compute);
        if (again) m.program.recompute("mlp", {});
        const Lowered made = compile(m.program, Mesh());
        int64_t bytes = 0;
        for (const Buffer& b : made.plan.classes.front().buffers)
            if (b.arena == Arena::scratch) bytes = std::max(bytes, b.offset + b.bytes);
        if (again && compute == DType::f8e4m3) {
            int forward = 0;
            for (const Op& op : made.plan.program.ops) {
                bool gradients = false;
                for (const ValueId input : op.inputs)
                    gradients |= made.plan.program.value(input).type.dtype == DType::f8e5m2;
                forward += op.kind == "matmul_quantized" && op.phase == Phase::backward && !gradients;
            }
            CHECK(forward > 0);
        }
        return bytes;
    };
    CHECK(peak(DType::f8e4m3, false) < peak(DType::bf16, false));
    CHECK(peak(DType::f8e4m3, true) > 0);
}

TEST_CASE("products of dims that 16 does not divide stay in 16 bits, and that is said") {
    const Model m = mlp(24, 4, 12, true, true, DType::f8e4m3);
    const Program made = lowered(m.program);
    CHECK(kinds(made).count("matmul_quantized") == 0);
    REQUIRE_FALSE(made.remarks().empty());
    CHECK_THAT(made.remarks().back().text, Catch::Contains("needs dims divisible by 16"));
    // What a rank holds decides: 32 is 16 on each of two, 8 on each of four.
    for (const int64_t ranks : {2, 4}) {
        Model split = mlp(64, 64, 32, true, true, DType::f8e4m3);
        split.split_names({{"mlp", "tp"}});
        CHECK((kinds(lowered(split.program, Mesh({{"tp", ranks}}))).count("matmul_quantized") != 0) == (ranks == 2));
    }
}

TEST_CASE("fp8 lies on meshes: nothing of 8 bits crosses ranks") {
    for (const int64_t micro : {1, 2}) {
        Model m = block(8, 16, 4, 16, 32, true, true, DType::f8e4m3);
        m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"batch", "dp"}});
        for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", Placement::split(1));
        if (micro > 1) m.program.microbatches(micro, {});
        const Mesh mesh = Mesh({{"dp", 2}, {"tp", 2}}).with_microbatches(micro);
        const Lowered made = compile(m.program, mesh);
        CHECK(kinds(made.plan.program)["matmul_quantized"] == 12);
        for (const RankClass& c : made.plan.classes)
            for (const Instruction& i : c.stream)
                if (i.axis != none)
                    for (const Operand& operand : i.operands) CHECK(size_of(operand.type.dtype) > 1);
    }
    Model stages = network({0, 1}, false, DType::f8e4m3, 32);
    const Schedule schedule = hand_1f1b(2, 2);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    stages.program.pipeline({"pp", schedule.name, 1, {}});
    stages.program.microbatches(2, {});
    CHECK_NOTHROW(compile(stages.program, Mesh({{"pp", 2}}).with_microbatches(2), options));
}
