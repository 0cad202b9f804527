// Normalisations over the last dim C: softmax, layernorm, rmsnorm. x [..., C], gain and bias [C], statistics f32 [...].
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_softmax(Infer& at) {
    at.expect_rank(0, 1);
    return like_input(at);
}

std::vector<Typed> infer_softmax_grad(Infer& at) {
    at.expect_rank(0, 1);
    at.expect_float(0);
    return {at.same_type(0, 1)};
}

void grad_softmax(Backward& g) { g.give(0, g.one("softmax_grad", {g.out(), g.dy()})); }

Typed without_last(Typed x, DType dtype) {
    x.type.shape.pop_back();
    x.dims.pop_back();
    x.type.dtype = dtype;
    return x;
}

// The type of statistics and weight gradients: f32 beside every compute type.
constexpr DType statistics = DType::f32;

// Checks the vector operands first..last-1: [C], f32 or x's type. Returns x with the name of C filled in.
Typed check_vectors(Infer& at, size_t first, size_t last) {
    at.expect_float(0);
    at.expect_rank(0, 1);
    Typed x = at.typed(0);
    for (size_t i = first; i < last; ++i) {
        at.expect_rank(i, 1, 1);
        if (at.dtype(i) != DType::f32) at.expect_same_dtype(0, i);
        const std::string name = at.same_dim(0, at.rank(0) - 1, i, 0, "last dim and size");
        if (!name.empty()) x.dims.back() = name;
    }
    return x;
}

std::vector<Typed> infer_layernorm(Infer& at) {
    const Typed x = check_vectors(at, 1, 3);
    return {x, without_last(x, statistics), without_last(x, statistics)};
}

std::vector<Typed> infer_rmsnorm(Infer& at) {
    const Typed x = check_vectors(at, 1, 2);
    return {x, without_last(x, statistics)};
}

// Operands from..count-2 are statistics of x, the last is dy.
std::vector<Typed> infer_norm_grad(Infer& at, size_t vectors) {
    const Typed x = check_vectors(at, 1, 2);
    const Typed rows = without_last(x, statistics);
    for (size_t i = 2; i + 1 < at.count(); ++i) {
        if (at.type(i) != rows.type) at.fail(fmt::format("{} does not fit {}", at.show(i), at.show(0)));
    }
    at.same_type(0, at.count() - 1);
    std::vector<Typed> result{x};
    result.resize(1 + vectors, make_typed(statistics, {x.type.shape.back()}, {x.dims.back()}));
    return result;
}

std::vector<Typed> infer_layernorm_grad(Infer& at) { return infer_norm_grad(at, 2); }
std::vector<Typed> infer_rmsnorm_grad(Infer& at) { return infer_norm_grad(at, 1); }

// Rows are split freely (Kind parallel) or summed into vector outputs (contracted); C is whole.
Rule norm_rule(const Program& program, const Op& op, Factor::Kind rows_kind) {
    const Shape& x = shape_of(program, op.inputs[0]);
    RuleMaker make;
    Rule::Dims rows;
    for (size_t d = 0; d + 1 < x.size(); ++d) rows.push_back(make.dim(rows_kind, x[d]));
    const auto last = make.whole(x.back());
    Rule::Dims all = rows;
    all.push_back(last);
    // gain and bias are vectors (of the gradient op: gain alone); statistics are told by their rank.
    const bool grad = rows_kind == Factor::Kind::contracted;
    auto dims_of = [&](ValueId id, bool vector) {
        if (vector) return Rule::Dims{last};
        return rank_of(program, id) == static_cast<int>(x.size()) ? all : rows;
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        make.rule.inputs.push_back(dims_of(op.inputs[i], i == 1 || (i > 1 && !grad)));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) make.rule.outputs.push_back(dims_of(op.outputs[i], grad && i >= 1));
    return make.rule;
}

Rule forward_rule(const Program& program, const Op& op) { return norm_rule(program, op, Factor::Kind::parallel); }
Rule backward_rule(const Program& program, const Op& op) { return norm_rule(program, op, Factor::Kind::contracted); }

void grad_layernorm(Backward& g) {
    g.expect_no_dy(1, "mean");
    g.expect_no_dy(2, "rstd");
    const auto d = g.add("layernorm_grad", {g.in(0), g.in(1), g.out(1), g.out(2), g.dy()});
    for (size_t i = 0; i < 3; ++i) g.give(i, d[i]);
}

void grad_rmsnorm(Backward& g) {
    g.expect_no_dy(1, "rstd");
    const auto d = g.add("rmsnorm_grad", {g.in(0), g.in(1), g.out(1), g.dy()});
    for (size_t i = 0; i < 2; ++i) g.give(i, d[i]);
}

}  // namespace

std::vector<OpDef> norm_ops() {
    const AttributeDef eps = number("eps", 1e-5);
    return {
        {.name = "softmax",
         .operands = {"x"},
         .infer = infer_softmax,
         .rule = last_dim_whole_rule,
         .gradient = grad_softmax,
         .flops = some_flops,
         .in_place = {{0, 0}}},
        {.name = "softmax_grad",
         .operands = {"y", "dy"},
         .infer = infer_softmax_grad,
         .rule = last_dim_whole_rule,
         .flops = some_flops,
         .in_place = {{0, 1}}},
        {.name = "layernorm",
         .operands = {"x", "gain", "bias"},
         .attributes = {eps},
         .infer = infer_layernorm,
         .rule = forward_rule,
         .gradient = grad_layernorm,
         .flops = some_flops},
        {.name = "layernorm_grad",
         .operands = {"x", "gain", "mean", "rstd", "dy"},
         .infer = infer_layernorm_grad,
         .rule = backward_rule,
         .flops = some_flops,
         .accumulates = {1, 2}},
        {.name = "rmsnorm",
         .operands = {"x", "gain"},
         .attributes = {eps},
         .infer = infer_rmsnorm,
         .rule = forward_rule,
         .gradient = grad_rmsnorm,
         .flops = some_flops},
        {.name = "rmsnorm_grad",
         .operands = {"x", "gain", "rstd", "dy"},
         .infer = infer_rmsnorm_grad,
         .rule = backward_rule,
         .flops = some_flops,
         .accumulates = {1}},
    };
}

}  // namespace orrery::ops
