// Embedding lookup: tokens i32 [...], table [V,C] -> [...,C].
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_embedding(Infer& at) {
    at.expect_rank(1, 2, 2);
    const int64_t ids = at.attributes.integer("ids"), rows = at.shape(1)[0];
    if (ids < 0 || ids > rows)
        at.fail(fmt::format("ids = {}, and {} has {} rows", ids, at.show(1), rows), "give the number of words, or 0");
    if (ids == 0 || ids == rows) at.attributes.erase("ids");
    Typed y = at.typed(0);
    y.type.dtype = at.dtype(1);
    y.type.shape.push_back(at.shape(1)[1]);
    y.dims.push_back(at.dims(1)[1]);
    return {y};
}

std::vector<Typed> infer_embedding_grad(Infer& at) {
    at.expect_rank(1, at.rank(0) + 1, at.rank(0) + 1);
    for (int d = 0; d < at.rank(0); ++d) at.same_dim(0, d, 1, d, "token dims");
    const int64_t vocab = at.attributes.integer("vocab");
    if (vocab < 1) at.fail(fmt::format("vocab = {} must be at least 1", vocab));
    return {make_typed(DType::f32, {vocab, at.shape(1).back()}, {"", at.dims(1).back()})};
}

// If rows of the table are split, each shard gives zeros for rows that it lacks, and the sum of all is the result.
FactorRule embedding_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims tokens;
    for (int64_t size : shape_of(program, op.inputs[0])) tokens.push_back(make.parallel(size));
    const Shape& table = shape_of(program, op.inputs[1]);
    const auto vocab = make.dim(Factor::Kind::index, table[0]);
    const auto columns = make.parallel(table[1]);
    make.rule.inputs = {tokens, {vocab, columns}};
    tokens.push_back(columns);
    make.rule.outputs = {tokens};
    return make.rule;
}

FactorRule embedding_grad_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims tokens;
    for (int64_t size : shape_of(program, op.inputs[0])) tokens.push_back(make.contracted(size));
    const Shape& table = shape_of(program, op.outputs[0]);
    const auto vocab = make.dim(Factor::Kind::index, table[0]);
    const auto columns = make.parallel(table[1]);
    FactorRule::Dims dy = tokens;
    dy.push_back(columns);
    make.rule.inputs = {tokens, dy};
    make.rule.outputs = {{vocab, columns}};
    return make.rule;
}

void grad_embedding(Backward& g) {
    const ValueId table = g.in(1);
    if (!g.wants(1)) return;
    const ValueId d = g.one("embedding_grad", {g.in(0), g.dy()}, {{"vocab", g.shape(table)[0]}});
    g.program().value(d).dims = g.program().value(table).dims;
    g.give(1, d);
}

int64_t grad_flops(const Program& program, const Op& op) { return program.value(op.inputs[1]).type.count(); }

constexpr Draw tokens{0, 11};

Samples lookups() {
    return {{.operands = {i32({4, 9}), f32({12, 6})}, .draws = {tokens}},
            {.operands = {i32({9}), f32({15, 33})}, .draws = {tokens}}};
}
Samples lookup_gradients() {
    return {{.operands = {i32({4, 9}), f32({4, 9, 6})}, .attributes = {{"vocab", int64_t{12}}}, .draws = {tokens}},
            {.operands = {i32({9}), f32({9, 33})}, .attributes = {{"vocab", int64_t{15}}}, .draws = {tokens}}};
}

}  // namespace

std::vector<OpDef> embedding_ops() {
    return {
        {.name = "embedding",
         .operands = {"tokens", "table"},
         .types = "i F -> F",
         .attributes = {integer("ids")},
         .infer = infer_embedding,
         .rule = embedding_rule,
         .gradient = grad_embedding,
         .flops = no_flops,
         .indexed = OperandRef{false, 1},
         .work = Work::rows,
         .looks_up = Lookup{0, {false, 1}, 0},
         .samples = lookups},
        {.name = "embedding_grad",
         .operands = {"tokens", "dy"},
         .types = "i F -> s",
         .attributes = {required(integer("vocab"))},
         .infer = infer_embedding_grad,
         .rule = embedding_grad_rule,
         .flops = grad_flops,
         .accumulates = {0},
         .indexed = OperandRef{true, 0},
         .samples = lookup_gradients},
    };
}

}  // namespace orrery::ops
