// Elementwise ops: (a, b) -> y, with numpy broadcasting from the right, and (x) -> y.
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_binary(Infer& at) {
    at.expect_same_dtype(0, 1);
    return {broadcast(at)};
}

FactorRule both_linear_rule(const Program& program, const Op& op) {
    FactorRule rule = elementwise_rule(program, op);
    rule.linear_in = {0, 1};
    return rule;
}

// The factor rule of mul and div. They are linear in one operand if the other one is a scalar.
FactorRule pointwise_product_rule(const Program& program, const Op& op) {
    FactorRule rule = elementwise_rule(program, op);
    if (rank_of(program, op.inputs[1]) == 0) {
        rule.linear_in = {0};
    } else if (op.kind == "mul" && rank_of(program, op.inputs[0]) == 0) {
        rule.linear_in = {1};
    }
    return rule;
}

// Gives input `i` the gradient dy times `sign`; it stays symbolic if dy is one number for all elements.
void give_signed(Backward& g, size_t i, double sign) {
    if (!g.wants(i)) return;
    if (const auto c = g.uniform()) {
        const auto copies = static_cast<double>(g.type(g.out()).count()) / static_cast<double>(g.type(g.in(i)).count());
        g.give_uniform(i, sign * *c * copies);
    } else {
        g.give(i, sign > 0 ? g.raw_dy() : g.one("neg", {g.raw_dy()}));
    }
}

void grad_add(Backward& g) {
    give_signed(g, 0, 1);
    give_signed(g, 1, 1);
}

void grad_sub(Backward& g) {
    give_signed(g, 0, 1);
    give_signed(g, 1, -1);
}

void grad_mul(Backward& g) {
    for (size_t i = 0; i < 2; ++i) {
        if (!g.wants(i)) continue;
        const ValueId other = g.in(1 - i);
        const auto c = g.uniform();
        if (c && g.shape(other) == g.shape(g.out())) {
            g.give(i, *c == 1 ? other : g.one("scale", {other}, {{"by", *c}}));
        } else {
            g.give(i, g.one("mul", {g.dy(), other}));
        }
    }
}

void grad_div(Backward& g) {
    const ValueId da = g.one("div", {g.dy(), g.in(1)});
    if (g.wants(0)) g.give(0, da);
    if (g.wants(1)) g.give(1, g.one("neg", {g.one("mul", {da, g.out()})}));  // y = a / b: db = -dy a / b^2
}

// The gradient of maximum and minimum goes to the operand that was selected; to a if both are equal.
void grad_extreme(Backward& g) {
    const ValueId first = g.one(g.op().kind == "maximum" ? "greater_equal" : "less_equal", {g.in(0), g.in(1)});
    const ValueId dy = g.dy();
    const ValueId zero = g.scalar(0, g.type(dy).dtype);
    if (g.wants(0)) g.give(0, g.one("select", {first, dy, zero}));
    if (g.wants(1)) g.give(1, g.one("select", {first, zero, dy}));
}

void grad_pow(Backward& g) {
    const ValueId a = g.in(0);
    const ValueId b = g.in(1);
    if (g.wants(0)) {  // y = a^b: da = dy b a^(b-1)
        const ValueId less = g.one("sub", {b, g.scalar(1, g.type(b).dtype)});
        g.give(0, g.one("mul", {g.dy(), g.one("mul", {b, g.one("pow", {a, less})})}));
    }
    if (g.wants(1)) g.give(1, g.one("mul", {g.dy(), g.one("mul", {g.out(), g.one("log", {a})})}));
}

void grad_neg(Backward& g) { give_signed(g, 0, -1); }
void grad_exp(Backward& g) { g.give(0, g.one("mul", {g.dy(), g.out()})); }
void grad_log(Backward& g) { g.give(0, g.one("div", {g.dy(), g.in(0)})); }
void grad_sqrt(Backward& g) { g.give(0, g.one("scale", {g.one("div", {g.dy(), g.out()})}, {{"by", 0.5}})); }

void grad_rsqrt(Backward& g) {  // y = rsqrt(x): dx = -1/2 dy y^3
    const ValueId cube = g.one("mul", {g.out(), g.one("square", {g.out()})});
    g.give(0, g.one("scale", {g.one("mul", {g.dy(), cube})}, {{"by", -0.5}}));
}

void grad_cos(Backward& g) { g.give(0, g.one("neg", {g.one("mul", {g.dy(), g.one("sin", {g.in(0)})})})); }
void grad_sin(Backward& g) { g.give(0, g.one("mul", {g.dy(), g.one("cos", {g.in(0)})})); }

void grad_tanh(Backward& g) {  // y = tanh(x): dx = dy (1 - y^2)
    const ValueId dy = g.dy();
    g.give(0, g.one("sub", {dy, g.one("mul", {dy, g.one("square", {g.out()})})}));
}

void grad_sigmoid(Backward& g) {  // y = sigmoid(x): dx = dy y (1 - y)
    const ValueId part = g.one("mul", {g.dy(), g.out()});
    g.give(0, g.one("sub", {part, g.one("mul", {part, g.out()})}));
}

void grad_square(Backward& g) { g.give(0, g.one("scale", {g.one("mul", {g.dy(), g.in(0)})}, {{"by", 2.0}})); }

void grad_abs(Backward& g) {
    const ValueId dy = g.dy();
    const ValueId positive = g.one("greater_equal", {g.in(0), g.scalar(0, g.type(g.in(0)).dtype)});
    g.give(0, g.one("select", {positive, dy, g.one("neg", {dy})}));
}

// The gradient of op KIND (silu, relu, gelu) is one op KIND_grad(x, dy) with the same attributes.
void grad_fused(Backward& g) { g.give(0, g.one(g.op().kind + "_grad", {g.in(0), g.dy()}, g.attributes())); }

void grad_scale(Backward& g) {
    const double by = g.attributes().number("by");
    if (const auto c = g.uniform()) return g.give_uniform(0, *c * by);
    g.give(0, g.one("scale", {g.raw_dy()}, {{"by", by}}));
}

// A gradient is not cast back through a cast: an f32 gradient of the bf16 copy of a weight is that of the f32 weight.
void grad_cast(Backward& g) {
    if (!is_float(g.type(g.out()).dtype)) return;
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    g.give(0, g.raw_dy());
}

std::vector<Typed> infer_cast(Infer& at) {
    Typed y = at.typed(0);
    y.type.dtype = at.dtype_attribute(DType::f32);
    return {y};
}

std::vector<Typed> infer_alike(Infer& at) { return {at.same_type(0, 1)}; }

std::vector<Typed> infer_compare(Infer& at) {
    Typed y = broadcast(at);
    y.type.dtype = DType::u8;
    return {y};
}

std::vector<Typed> infer_select(Infer& at) {
    Typed y = broadcast(at);
    y.type.dtype = at.dtype(1);
    return {y};
}

void grad_select(Backward& g) {
    const ValueId dy = g.dy();
    const ValueId zero = g.scalar(0, g.type(dy).dtype);
    if (g.wants(1)) g.give(1, g.one("select", {g.in(0), dy, zero}));
    if (g.wants(2)) g.give(2, g.one("select", {g.in(0), zero, dy}));
}

std::vector<Typed> infer_swiglu_grad(Infer& at) {
    Typed d = at.same_type(0, 1);
    at.same_type(0, 2);
    return {d, d};
}

void grad_swiglu(Backward& g) {
    const auto d = g.add("swiglu_grad", {g.in(0), g.in(1), g.dy()});
    g.give(0, d[0]);
    g.give(1, d[1]);
}

constexpr Draw positive{0.5, 2};

Samples one() { return {{{f32({4, 33})}}}; }
Samples one_positive() { return {{.operands = {f32({4, 33})}, .draws = {positive}}}; }
Samples one_approx() { return {{{f32({4, 33})}}, {{f32({4, 33})}, {{"approx", std::string("erf")}}}}; }
Samples two() { return {{{f32({4, 33}), f32({4, 33})}}}; }
Samples two_approx() {
    return {{{f32({4, 33}), f32({4, 33})}}, {{f32({4, 33}), f32({4, 33})}, {{"approx", std::string("erf")}}}};
}
Samples three() { return {{{f32({4, 33}), f32({4, 33}), f32({4, 33})}}}; }
Samples casts() {
    return {{{f32({4, 33})}, {{"dtype", std::string("bf16")}}}, {{f32({4, 33})}, {{"dtype", std::string("f16")}}}};
}

/// Test samples of broadcasting: equal shapes, a row to all rows, operands along different dims, and scalars.
Samples broadcasting() {
    return {{{f32({4, 33}), f32({4, 33})}},  {{f32({4, 33}), f32({33})}}, {{f32({9}), f32({4, 9})}},
            {{f32({4, 1, 6}), f32({9, 1})}}, {{f32({}), f32({9})}},       {{f32({4, 9}), f32({})}}};
}
Samples broadcasting(std::vector<std::optional<Draw>> draws) {
    Samples samples = broadcasting();
    for (OpSample& sample : samples) sample.draws = draws;
    return samples;
}
Samples quotients() { return broadcasting({std::nullopt, positive}); }
Samples powers() { return broadcasting({positive, std::nullopt}); }
Samples comparisons() {
    Samples samples = broadcasting();
    samples.push_back({.operands = {i32({4, 9}), i32({})}, .draws = {Draw{0, 3}, Draw{1, 2}}});
    return samples;
}
Samples selections() { return {{{u8({4, 33}), f32({4, 33}), f32({33})}}, {{u8({33}), f32({4, 1}), f32({})}}}; }

OpDef binary(std::string_view name, FactorRule (*rule)(const Program&, const Op&), void (*gradient)(Backward&)) {
    return {.name = name,
            .operands = {"a", "b"},
            .types = "F F -> F",
            .infer = infer_binary,
            .rule = rule,
            .gradient = gradient,
            .flops = one_flop,
            .in_place = {{0, 0}, {0, 1}},
            .samples = broadcasting};
}

OpDef combining(std::string_view name, ReduceOp how, FactorRule (*rule)(const Program&, const Op&),
                void (*gradient)(Backward&)) {
    OpDef def = binary(name, rule, gradient);
    def.combines = how;
    return def;
}

OpDef unary(std::string_view name, void (*gradient)(Backward&), std::vector<AttributeDef> attributes = {}) {
    return {.name = name,
            .operands = {"x"},
            .types = "f -> f",
            .attributes = std::move(attributes),
            .infer = like_input,
            .rule = elementwise_rule,
            .gradient = gradient,
            .flops = some_flops,
            .in_place = {{0, 0}},
            .samples = one};
}

/// An elementwise op that is only defined for positive numbers, so that tests draw only such inputs.
OpDef root(std::string_view name, void (*gradient)(Backward&)) {
    OpDef def = unary(name, gradient);
    def.samples = one_positive;
    return def;
}

OpDef unary_grad(std::string_view name, std::vector<AttributeDef> attributes = {}) {
    return {.name = name,
            .operands = {"x", "dy"},
            .types = "f f -> f",
            .attributes = std::move(attributes),
            .infer = infer_alike,
            .rule = elementwise_rule,
            .flops = some_flops,
            .in_place = {{0, 1}, {0, 0}},
            .samples = two};
}

// The element of an operand of shape `from` that element i of a result of shape `to` reads.
int64_t broadcast_from(const Shape& from, const Shape& to, int64_t i) {
    int64_t at = 0, stride = 1;
    for (size_t d = from.size(), last = to.size(); d-- > 0; i /= to[last]) {
        --last;
        if (from[d] > 1) at += i % to[last] * stride;
        stride *= from[d];
    }
    return at;
}

std::vector<Rivals> other_order(const Attributes&, std::span<const Shape> operands, const Tensor& want,
                                const Tensor& have) {
    const auto *before = static_cast<const uint8_t*>(want.data), *now = static_cast<const uint8_t*>(have.data);
    std::vector<Rivals> found;
    for (int64_t i = 0; i < want.count(); ++i)
        if (before[i] != now[i])
            found.push_back(
                {i, broadcast_from(operands[0], want.shape, i), broadcast_from(operands[1], want.shape, i)});
    return found;
}

OpDef compare(std::string_view name) {
    return {.name = name,
            .operands = {"a", "b"},
            .types = "n n -> b",
            .infer = infer_compare,
            .rule = elementwise_rule,
            .flops = one_flop,
            .choice = FloatChoice{0, {0, 1}, other_order},
            .samples = comparisons};
}

AttributeDef approx() { return text("approx", {"tanh", "erf"}, "tanh"); }

}  // namespace

std::vector<OpDef> elementwise_ops() {
    OpDef neg = unary("neg", grad_neg);
    neg.rule = linear_rule;
    neg.multiplies = {0};
    OpDef scale = unary("scale", grad_scale, {required(number("by"))});
    scale.types = "F -> F";
    scale.rule = linear_rule;
    scale.flops = one_flop;
    scale.multiplies = {0};
    scale.samples = [] { return Samples{{{f32({4, 33})}, {{"by", -0.7}}}}; };
    OpDef cast = unary("cast", grad_cast, {required(text("dtype"))});
    cast.types = "* -> *";
    cast.infer = infer_cast;
    cast.rule = linear_rule;
    cast.flops = one_flop;
    cast.in_place = {};
    cast.casts = true;
    cast.work = Work::once;
    cast.multiplies = {0};
    cast.samples = casts;
    OpDef mul = binary("mul", pointwise_product_rule, grad_mul);
    mul.multiplies = {0, 1};
    OpDef div = binary("div", pointwise_product_rule, grad_div);
    div.multiplies = {0};
    div.samples = quotients;
    OpDef pow = binary("pow", elementwise_rule, grad_pow);
    pow.samples = powers;
    OpDef gelu = unary("gelu", grad_fused, {approx()});
    gelu.samples = one_approx;
    OpDef gelu_grad = unary_grad("gelu_grad", {approx()});
    gelu_grad.samples = two_approx;
    return {
        combining("add", ReduceOp::sum, both_linear_rule, grad_add),
        binary("sub", both_linear_rule, grad_sub),
        mul,
        div,
        combining("maximum", ReduceOp::max, elementwise_rule, grad_extreme),
        combining("minimum", ReduceOp::min, elementwise_rule, grad_extreme),
        pow,
        neg,
        unary("exp", grad_exp),
        root("log", grad_log),
        root("sqrt", grad_sqrt),
        root("rsqrt", grad_rsqrt),
        unary("cos", grad_cos),
        unary("sin", grad_sin),
        unary("tanh", grad_tanh),
        unary("sigmoid", grad_sigmoid),
        unary("silu", grad_fused),
        unary("relu", grad_fused),
        unary("square", grad_square),
        unary("abs", grad_abs),
        gelu,
        scale,
        cast,
        compare("less"),
        compare("less_equal"),
        compare("greater"),
        compare("greater_equal"),
        compare("equal"),
        {.name = "select",
         .operands = {"c", "a", "b"},
         .types = "b f f -> f",
         .infer = infer_select,
         .rule = elementwise_rule,
         .gradient = grad_select,
         .flops = one_flop,
         .in_place = {{0, 1}, {0, 2}},
         .samples = selections},
        gelu_grad,
        unary_grad("silu_grad"),
        unary_grad("relu_grad"),
        {.name = "swiglu",
         .operands = {"gate", "up"},
         .types = "f f -> f",
         .infer = infer_alike,
         .rule = elementwise_rule,
         .gradient = grad_swiglu,
         .flops = some_flops,
         .in_place = {{0, 0}, {0, 1}},
         .samples = two},
        {.name = "swiglu_grad",
         .operands = {"gate", "up", "dy"},
         .types = "f f f -> f f",
         .infer = infer_swiglu_grad,
         .rule = elementwise_rule,
         .flops = some_flops,
         .in_place = {{0, 0}, {1, 1}},
         .samples = three},
    };
}

}  // namespace orrery::ops
