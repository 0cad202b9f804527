// Ops for constants and random numbers: full, random, dropout. Draws depend only on seed, stream and element index.
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_full(Infer& at) { return {shaped(at, at.dtype_attribute(DType::f32))}; }

// Checks the seed. An op without the attribute `stream` gets one of its own: ops of one stream draw equal numbers.
void check_draw(Infer& at, size_t seed) {
    at.expect_rank(seed, 0, 0);
    if (!at.attributes.has("stream")) at.attributes.set("stream", at.op_count());
}

std::vector<Typed> infer_random(Infer& at) {
    check_draw(at, 0);
    return {shaped(at, DType::f32)};
}

std::vector<Typed> infer_dropout(Infer& at) {
    check_draw(at, 1);
    const double p = at.attributes.number("p");
    if (!(p >= 0 && p < 1)) at.fail(fmt::format("p = {} must be at least 0 and below 1", p));
    return like_input(at);
}

// The mask of dropout does not depend on x, so dropout is linear in x.
void grad_dropout(Backward& g) { g.give(0, g.one("dropout", {g.dy(), g.in(1)}, g.attributes())); }

const Draw seeds{7, 7};

Samples constants() {
    return {{{}, {{"shape", Ints{4, 33}}, {"value", 0.75}}},
            {{}, {{"shape", Ints{4, 9}}, {"value", 3.0}, {"dtype", std::string("i32")}}}};
}
Samples draws() {
    return {{.operands = {u32({})}, .attributes = {{"shape", Ints{4, 33}}}, .draws = {seeds}},
            {.operands = {u32({})},
             .attributes = {{"shape", Ints{4, 9}}, {"kind", std::string("uniform")}, {"scale", 0.02}},
             .draws = {seeds}}};
}
Samples dropouts() {
    return {{.operands = {f32({4, 33}), u32({})},
             .attributes = {{"p", 0.4}, {"stream", int64_t{3}}},
             .draws = {std::nullopt, seeds}}};
}

}  // namespace

std::vector<OpDef> random_ops() {
    return {
        {.name = "full",
         .types = "-> a",
         .attributes = {required(integers("shape")), required(number("value")), text("dtype", {}, "f32")},
         .infer = infer_full,
         .rule = source_rule,
         .flops = no_flops,
         .source = true,
         .samples = constants},
        {.name = "random",
         .operands = {"seed"},
         .types = "u -> s",
         .attributes = {required(integers("shape")), text("kind", {"normal", "uniform"}, "normal"),
                        number("scale", 1.0), integer("stream")},
         .infer = infer_random,
         .rule = source_rule,
         .flops = some_flops,
         .indexed = OperandRef{true, 0},
         .source = true,
         .samples = draws},
        {.name = "dropout",
         .operands = {"x", "seed"},
         .types = "f u -> f",
         .attributes = {required(number("p")), integer("stream")},
         .infer = infer_dropout,
         .rule = linear_rule,
         .gradient = grad_dropout,
         .flops = some_flops,
         .in_place = {{0, 0}},
         .indexed = OperandRef{false, 0},
         .samples = dropouts},
    };
}

}  // namespace orrery::ops
