// Ops for constants and random numbers: full, random, dropout. Draws depend only on seed, stream and element index.
// With places, the index along dim 1 is the place: what a token draws does not depend on the order of its row.
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_full(Infer& at) { return {shaped(at, at.dtype_attribute(DType::f32))}; }

// Checks the seed and the places after it [B,T] for an output y [B,T,...]. An op without the attribute `stream` gets
// one of its own: ops of one stream draw equal numbers.
void check_draw(Infer& at, size_t seed, const Typed& y) {
    at.expect_rank(seed, 0, 0);
    if (!at.attributes.has("stream")) at.attributes.set("stream", at.op_count());
    if (at.count() == seed + 1) return;
    const Shape& places = at.shape(seed + 1);
    const Shape& shape = y.type.shape;
    if (places.size() == 2 && shape.size() >= 2 && places[0] == shape[0] && places[1] == shape[1]) return;
    at.fail(fmt::format("{} does not match the first two dims of {}", at.show(seed + 1), y.type.text()),
            "give places [batch, seq] for a value [batch, seq, ...]");
}

std::vector<Typed> infer_random(Infer& at) {
    Typed y = shaped(at, DType::f32);
    check_draw(at, 0, y);
    return {std::move(y)};
}

std::vector<Typed> infer_dropout(Infer& at) {
    check_draw(at, 1, at.typed(0));
    const double p = at.attributes.number("p");
    if (!(p >= 0 && p < 1)) at.fail(fmt::format("p = {} must be at least 0 and below 1", p));
    return like_input(at);
}

/// Every dim may be split, with places where it is one of theirs.
FactorRule draw_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims y;
    for (const int64_t size : shape_of(program, op.outputs[0])) y.push_back(make.parallel(size));
    const bool from_x = op.inputs.size() > 1 && rank_of(program, op.inputs[1]) == 0;
    if (from_x) {
        make.rule.inputs.push_back(y);
        make.rule.linear_in = {0};
    }
    make.rule.inputs.emplace_back();  // the seed
    if (make.rule.inputs.size() < op.inputs.size()) make.rule.inputs.push_back({y[0], y[1]});
    make.rule.outputs = {std::move(y)};
    return make.rule;
}

// The mask of dropout does not depend on x, so dropout is linear in x.
void grad_dropout(Backward& g) {
    std::vector<ValueId> inputs{g.dy()};
    for (size_t i = 1; i < g.count(); ++i) inputs.push_back(g.in(i));
    g.give(0, g.one("dropout", std::move(inputs), g.attributes()));
}

const Draw seeds{7, 7}, some_place{0, 8};

Samples constants() {
    return {{{}, {{"shape", Ints{4, 33}}, {"value", 0.75}}},
            {{}, {{"shape", Ints{4, 9}}, {"value", 3.0}, {"dtype", std::string("i32")}}}};
}
Samples draws() {
    return {
        {.operands = {u32({})}, .attributes = {{"shape", Ints{4, 33}}}, .draws = {seeds}},
        {.operands = {u32({})},
         .attributes = {{"shape", Ints{4, 9}}, {"kind", std::string("uniform")}, {"scale", 0.02}},
         .draws = {seeds}},
        {.operands = {u32({}), i32({4, 9})}, .attributes = {{"shape", Ints{4, 9, 6}}}, .draws = {seeds, some_place}}};
}
Samples dropouts() {
    return {{.operands = {f32({4, 33}), u32({})},
             .attributes = {{"p", 0.4}, {"stream", int64_t{3}}},
             .draws = {std::nullopt, seeds}},
            {.operands = {f32({4, 9, 6}), u32({}), i32({4, 9})},
             .attributes = {{"p", 0.4}, {"stream", int64_t{3}}},
             .draws = {std::nullopt, seeds, some_place}},
            {.operands = {f32({4, 9}), u32({}), i32({4, 9})},
             .attributes = {{"p", 0.4}, {"stream", int64_t{3}}},
             .draws = {std::nullopt, seeds, some_place}}};
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
         .operands = {"seed", "places?"},
         .types = "u i? -> s",
         .attributes = {required(integers("shape")), text("kind", {"normal", "uniform"}, "normal"),
                        number("scale", 1.0), integer("stream")},
         .infer = infer_random,
         .rule = draw_rule,
         .flops = some_flops,
         .indexed = OperandRef{true, 0},
         .source = true,
         .samples = draws},
        {.name = "dropout",
         .operands = {"x", "seed", "places?"},
         .types = "f u i? -> f",
         .attributes = {required(number("p")), integer("stream")},
         .infer = infer_dropout,
         .rule = draw_rule,
         .gradient = grad_dropout,
         .flops = some_flops,
         .in_place = {{0, 0}},
         .indexed = OperandRef{false, 0},
         .samples = dropouts},
    };
}

}  // namespace orrery::ops
