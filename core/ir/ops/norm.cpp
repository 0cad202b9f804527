// Normalizations over the last dim C: softmax, layernorm, rmsnorm. x [...,C], gain and bias [C], statistics f32 [...].
// With a residual, a norm also returns x + residual; its gradient op then adds the gradient of that sum.
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
    return {at.same_type(0, 1)};
}

void grad_softmax(Backward& g) { g.give(0, g.one("softmax_grad", {g.out(), g.dy()})); }

Typed without_last(Typed x, DType dtype) {
    x.type.shape.pop_back();
    x.dims.pop_back();
    x.type.dtype = dtype;
    return x;
}

// The type of statistics and weight gradients, for every compute type.
constexpr DType statistics = DType::f32;

// Checks that operands first to last - 1 are [C], f32 or like x. Returns the type of x, with the name of C filled in.
Typed check_vectors(Infer& at, size_t first, size_t last) {
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

// The outputs of a norm. Layernorm has vectors gain and bias, statistics mean and rstd; rmsnorm has gain and rstd.
std::vector<Typed> infer_norm(Infer& at, size_t vectors) {
    Typed x = check_vectors(at, 1, 1 + vectors);
    const bool sums = at.count() > 1 + vectors;
    if (sums) {
        const std::string channels = x.dims.back();  // a name that may come from gain or bias
        x.dims = at.same_type(0, 1 + vectors).dims;
        if (x.dims.back().empty()) x.dims.back() = channels;
        for (size_t i = 1; i <= vectors; ++i) at.unify(1 + vectors, at.rank(0) - 1, i, 0);
    }
    std::vector<Typed> result(1 + vectors, without_last(x, statistics));
    result[0] = x;
    if (sums) result.push_back(x);
    return result;
}

std::vector<Typed> infer_layernorm(Infer& at) { return infer_norm(at, 2); }
std::vector<Typed> infer_rmsnorm(Infer& at) { return infer_norm(at, 1); }

std::vector<Typed> infer_norm_grad(Infer& at, size_t vectors) {
    const Typed x = check_vectors(at, 1, 2);
    const Typed rows = without_last(x, statistics);
    for (size_t i = 2; i < 2 + vectors; ++i) {
        if (at.type(i) != rows.type) at.fail(fmt::format("{} does not fit {}", at.show(i), at.show(0)));
    }
    for (size_t i = 2 + vectors; i < at.count(); ++i) at.same_type(0, i);
    std::vector<Typed> result{x};
    result.resize(1 + vectors, make_typed(statistics, {x.type.shape.back()}, {x.dims.back()}));
    return result;
}

std::vector<Typed> infer_layernorm_grad(Infer& at) { return infer_norm_grad(at, 2); }
std::vector<Typed> infer_rmsnorm_grad(Infer& at) { return infer_norm_grad(at, 1); }

// The factor rule of a norm or its gradient: rows may be split, C is whole. Split rows make dgain and dbias partial.
FactorRule norm_rule(const Program& program, const Op& op, Factor::Kind rows_kind) {
    const Shape& x = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims rows;
    for (size_t d = 0; d + 1 < x.size(); ++d) rows.push_back(make.dim(rows_kind, x[d]));
    const auto last = make.whole(x.back());
    FactorRule::Dims all = rows;
    all.push_back(last);
    // Inputs 1 to `vectors` are gain and bias; a gradient op has only gain. Statistics are recognized by their rank.
    const bool grad = rows_kind == Factor::Kind::contracted;
    const size_t vectors = op.kind == "layernorm" ? 2 : 1;
    auto dims_of = [&](ValueId id, bool vector) {
        if (vector) return FactorRule::Dims{last};
        return rank_of(program, id) == std::ssize(x) ? all : rows;
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        make.rule.inputs.push_back(dims_of(op.inputs[i], i > 0 && i <= vectors));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) make.rule.outputs.push_back(dims_of(op.outputs[i], grad && i >= 1));
    return make.rule;
}

FactorRule forward_rule(const Program& program, const Op& op) { return norm_rule(program, op, Factor::Kind::parallel); }
FactorRule backward_rule(const Program& program, const Op& op) {
    return norm_rule(program, op, Factor::Kind::contracted);
}

// The gradient of a norm. `vectors`: 2 for gain and bias, 1 for gain. With a residual, the last output is x + residual.
void grad_norm(Backward& g, std::string_view kind, size_t vectors) {
    const bool sums = g.count() > 1 + vectors;
    const size_t sum = 1 + vectors;
    for (size_t o = 1; o < sum; ++o) g.expect_no_dy(o, o + 1 == sum ? "rstd" : "mean");
    std::vector<ValueId> d;
    if (g.has_dy(0)) {
        std::vector<ValueId> operands{sums ? g.out(sum) : g.in(0), g.in(1)};
        for (size_t o = 1; o < sum; ++o) operands.push_back(g.out(o));
        operands.push_back(g.dy());
        if (sums && g.has_dy(sum)) operands.push_back(g.dy(sum));
        d = g.add(kind, operands);
        for (size_t i = 1; i < sum; ++i) g.give(i, d[i]);
    } else {
        d = {g.dy(sum)};
    }
    g.give(0, d[0]);
    if (sums) g.give(sum, d[0]);
}

void grad_layernorm(Backward& g) { grad_norm(g, "layernorm_grad", 2); }
void grad_rmsnorm(Backward& g) { grad_norm(g, "rmsnorm_grad", 1); }

constexpr Draw deviations{0.5, 2};  // test values for rstd, the reciprocal standard deviation of a row

Samples rows() { return {{{f32({4, 6, 9})}}, {{f32({4, 33})}}, {{f32({9})}}}; }
Samples pairs_of_rows() { return {{{f32({4, 6, 9}), f32({4, 6, 9})}}, {{f32({4, 33}), f32({4, 33})}}}; }
Samples norms(size_t vectors) {
    Samples samples;
    for (const Shape& x : {Shape{4, 6, 9}, Shape{4, 33}, Shape{9}}) {
        std::vector<TensorType> operands(1 + vectors, f32({x.back()}));
        operands[0] = f32(x);
        samples.push_back({operands, {{"eps", 1e-3}}});
        operands.push_back(f32(x));
        samples.push_back({operands, {{"eps", 1e-3}}});
    }
    return samples;
}
/// Test samples of a norm's gradient: x, gain, statistics, dy; each shape with and without a gradient of the sum.
Samples norm_gradients(size_t statistics_of_row) {
    Samples samples;
    for (const Shape& x : {Shape{4, 6, 9}, Shape{4, 33}}) {
        const Shape each(x.begin(), x.end() - 1);
        OpSample sample{{f32(x), f32({x.back()})}};
        sample.operands.resize(2 + statistics_of_row, f32(each));
        sample.draws.resize(1 + statistics_of_row);
        sample.draws.emplace_back(deviations);
        sample.operands.push_back(f32(x));
        samples.push_back(sample);
        sample.operands.push_back(f32(x));
        samples.push_back(sample);
    }
    return samples;
}

}  // namespace

std::vector<OpDef> norm_ops() {
    const AttributeDef eps = number("eps", 1e-5);
    return {
        {.name = "softmax",
         .operands = {"x"},
         .types = "f -> f",
         .infer = infer_softmax,
         .rule = last_dim_whole_rule,
         .gradient = grad_softmax,
         .flops = some_flops,
         .in_place = {{0, 0}},
         .samples = rows},
        {.name = "softmax_grad",
         .operands = {"y", "dy"},
         .types = "f f -> f",
         .infer = infer_softmax_grad,
         .rule = last_dim_whole_rule,
         .flops = some_flops,
         .in_place = {{0, 1}},
         .samples = pairs_of_rows},
        {.name = "layernorm",
         .operands = {"x", "gain", "bias", "residual?"},
         .types = "f F F f? -> F s s f?",
         .attributes = {eps},
         .infer = infer_layernorm,
         .rule = forward_rule,
         .gradient = grad_layernorm,
         .flops = some_flops,
         .in_place = {{3, 0}, {3, 3}},
         .norm_vectors = 2,
         .fused_of = {"add"},
         .samples = [] { return norms(2); }},
        {.name = "layernorm_grad",
         .operands = {"x", "gain", "mean", "rstd", "dy", "dsum?"},
         .types = "F F s s F f? -> f s s",
         .infer = infer_layernorm_grad,
         .rule = backward_rule,
         .flops = some_flops,
         .in_place = {{0, 5}},
         .accumulates = {1, 2},
         .samples = [] { return norm_gradients(2); }},
        {.name = "rmsnorm",
         .operands = {"x", "gain", "residual?"},
         .types = "f F f? -> F s f?",
         .attributes = {eps},
         .infer = infer_rmsnorm,
         .rule = forward_rule,
         .gradient = grad_rmsnorm,
         .flops = some_flops,
         .in_place = {{2, 0}, {2, 2}},
         .norm_vectors = 1,
         .fused_of = {"add"},
         .samples = [] { return norms(1); }},
        {.name = "rmsnorm_grad",
         .operands = {"x", "gain", "rstd", "dy", "dsum?"},
         .types = "F F s F f? -> f s",
         .infer = infer_rmsnorm_grad,
         .rule = backward_rule,
         .flops = some_flops,
         .in_place = {{0, 4}},
         .accumulates = {1},
         .samples = [] { return norm_gradients(1); }},
    };
}

}  // namespace orrery::ops
