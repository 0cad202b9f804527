// Attention and rope: q and o [B,T,H,D], k and v [B,S,G,D], lse f32 [B,H,T]. B batch, T query positions, S key
// positions, H query heads, G key/value heads (G divides H), D head dim.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

/// Checks the attribute `window`, the number of keys that a query sees up to its own position; 0 (all) is removed.
void check_window(Infer& at) {
    const int64_t window = at.attributes.integer("window");
    if (window < 0) {
        at.fail(fmt::format("window = {} is negative", window),
                "give 1 or more, the query's own among them, or 0 for all keys up to it");
    }
    if (window == 0) {
        at.attributes.erase("window");
    } else if (!at.attributes.flag("causal")) {
        at.fail(
            fmt::format("window = {} needs causal attention: a window has the last keys up to the query's own", window),
            "add causal = true, or leave the window out");
    }
}

void check_heads(Infer& at) {
    for (size_t i = 0; i < 3; ++i) at.expect_rank(i, 4, 4);
    at.same_type(1, 2);
    at.same_dim(0, 0, 1, 0, "batch dims");
    at.same_dim(0, 3, 1, 3, "head dims");
    const int64_t heads = at.shape(0)[2];
    const int64_t groups = at.shape(1)[2];
    if (heads % groups != 0) {
        at.fail(fmt::format("{} query heads are not divisible by {} key/value heads: {} and {}", heads, groups,
                            at.show(0), at.show(1)),
                "the first must be a multiple of the second");
    }
    if (at.attributes.flag("causal") && at.shape(0)[1] != at.shape(1)[1]) {
        at.fail(fmt::format("causal attention needs as many queries as keys: {} and {}", at.show(0), at.show(1)));
    }
    check_window(at);
    if (!at.attributes.has("scale")) {
        at.attributes.set("scale", 1 / std::sqrt(static_cast<double>(at.shape(0)[3])));
    }
}

Typed statistics_of(const Typed& q) {
    const Shape& shape = q.type.shape;
    return make_typed(DType::f32, {shape[0], shape[2], shape[1]}, {q.dims[0], q.dims[2], q.dims[1]});
}

std::vector<Typed> infer_attention(Infer& at) {
    check_heads(at);
    const Typed q = at.typed(0);
    return {q, statistics_of(q)};
}

std::vector<Typed> infer_attention_grad(Infer& at) {
    check_heads(at);
    at.same_type(0, 3);
    if (at.type(4) != statistics_of(at.typed(0)).type)
        at.fail(fmt::format("{} does not fit {}", at.show(4), at.show(0)));
    at.same_type(0, 5);
    return {at.typed(0), at.typed(1), at.typed(2)};
}

// The factor rule of attention. H query heads are [g, r]: r of them share each of the g key/value heads. A split of g
// splits every operand. A split of r leaves k and v whole on each rank, and makes their gradients partial.
FactorRule heads_rule(const Program& program, const Op& op) {
    const Shape& q = shape_of(program, op.inputs[0]);
    const Shape& k = shape_of(program, op.inputs[1]);
    const bool grad = op.kind == "attention_grad";
    RuleMaker make;
    const auto batch = make.parallel(q[0]);
    const auto queries = make.whole(q[1]);
    const auto keys = make.whole(k[1]);
    const auto group = make.parallel(k[2]);
    const auto repeat = make.dim(grad ? Factor::Kind::contracted : Factor::Kind::parallel, q[2] / k[2]);
    const auto head_dim = make.whole(q[3]);
    std::vector<int> heads = group;
    heads.insert(heads.end(), repeat.begin(), repeat.end());
    const FactorRule::Dims like_q{batch, queries, heads, head_dim};
    const FactorRule::Dims like_k{batch, keys, group, head_dim};
    const FactorRule::Dims lse{batch, heads, queries};
    make.rule.inputs = {like_q, like_k, like_k};
    if (grad) {
        make.rule.inputs.insert(make.rule.inputs.end(), {like_q, lse, like_q});
        make.rule.outputs = {like_q, like_k, like_k};
    } else {
        make.rule.outputs = {like_q, lse};
    }
    return make.rule;
}

void grad_attention(Backward& g) {
    g.expect_no_dy(1, "lse");
    const auto d = g.add("attention_grad", {g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), g.dy()}, g.attributes());
    for (size_t i = 0; i < 3; ++i) g.give(i, d[i]);
}

// FLOPs: two GEMMs [T,D] x [D,S] per head. A causal mask leaves about half of the T T scores. A window of W also
// removes a triangle of side T - W, which leaves W (2 T - W) / 2.
int64_t attention_flops(const Program& program, const Op& op) {
    const Shape& q = shape_of(program, op.inputs[0]);
    const int64_t keys = shape_of(program, op.inputs[1])[1];
    const int64_t each = 4 * q[0] * q[2] * q[3];
    if (!op.attributes.flag("causal")) return each * q[1] * keys;
    const int64_t window = op.attributes.has("window") ? std::min(op.attributes.integer("window"), keys) : keys;
    return each * window * (2 * keys - window) / 2;
}

// FLOPs of the gradient: five GEMMs of the size of attention's two (the scores again, dp, dv, dq, dk).
int64_t attention_grad_flops(const Program& program, const Op& op) { return attention_flops(program, op) / 2 * 5; }

constexpr std::string_view scalings[] = {"factor", "low_freq_factor", "high_freq_factor", "original_positions"};

/// Checks the four attributes of rope that scale positions. `factor` alone scales all wavelengths; the other three are
/// given together. A factor of 1 scales nothing: all four are removed.
void check_scaling(Infer& at) {
    Attributes& given = at.attributes;
    const double factor = given.number("factor", 1);
    if (!std::isfinite(factor) || factor <= 0)
        at.fail(fmt::format("factor = {} is not a valid scaling of positions", factor), "give a number above 0, as 8");
    int64_t parts = 0;
    for (const std::string_view name : scalings) parts += name != "factor" && given.has(name);
    if (parts > 0 && (parts < 3 || !given.has("factor")))
        at.fail("scaling by wavelength needs factor, low_freq_factor, high_freq_factor and original_positions",
                "give all four, or factor alone to scale every wavelength");
    if (parts > 0) {
        const double low = given.number("low_freq_factor"), high = given.number("high_freq_factor");
        if (!(low > 0 && low < high && std::isfinite(high)))
            at.fail(
                fmt::format("low_freq_factor = {} and high_freq_factor = {} are not a range of wavelengths", low, high),
                "give numbers above 0, the second the larger");
        if (const int64_t positions = given.integer("original_positions"); positions < 1)
            at.fail(fmt::format("original_positions = {} is too small", positions), "give 1 or more");
    }
    if (factor != 1) return;
    for (const std::string_view name : scalings) given.erase(name);
}

// Rope: y [B,T,H,D] is x with the halves of D rotated by angles that grow with the position.
std::vector<Typed> infer_rope(Infer& at) {
    at.expect_rank(0, 4, 4);
    if (at.shape(0)[3] % 2 != 0) at.fail(fmt::format("the last dim of {} must be even", at.show(0)));
    check_scaling(at);
    return like_input(at);
}

FactorRule rope_rule(const Program& program, const Op& op) {
    FactorRule rule = last_dim_whole_rule(program, op);
    rule.linear_in = {0};
    return rule;
}

void grad_rope(Backward& g) {
    Attributes back = g.attributes();
    if (back.flag("inverse")) {
        back.erase("inverse");
    } else {
        back.set("inverse", true);
    }
    g.give(0, g.one("rope", {g.dy()}, back));
}

Samples rotations() {
    return {{{f32({2, 9, 3, 6})}, {{"theta", 100.0}}},
            {{f32({2, 9, 3, 6})}, {{"theta", 100.0}, {"inverse", true}, {"start", int64_t{7}}}},
            {{f32({2, 9, 3, 6})}, {{"theta", 100.0}, {"factor", 4.0}}},
            {{f32({2, 9, 3, 16})},
             {{"theta", 100.0},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_positions", int64_t{64}}}}};
}

/// Test samples of attention: two or three query heads per key/value head; one each; a single key/value head with more
/// keys than queries; windows of two keys and of one.
Samples attentions() {
    const auto sample = [](Shape q, Shape k, bool causal, int64_t window = 0) {
        return OpSample{{f32(std::move(q)), f32(k), f32(k)}, {{"causal", causal}, {"window", window}}};
    };
    return {sample({2, 5, 6, 3}, {2, 5, 2, 3}, true),    sample({2, 5, 6, 3}, {2, 5, 3, 3}, true),
            sample({2, 5, 4, 3}, {2, 5, 4, 3}, true),    sample({2, 3, 4, 5}, {2, 7, 1, 5}, false),
            sample({2, 5, 6, 3}, {2, 5, 2, 3}, true, 2), sample({2, 5, 4, 3}, {2, 5, 4, 3}, true, 1)};
}
Samples attention_gradients() {
    Samples samples = attentions();
    for (OpSample& sample : samples) {
        const TensorType q = sample.operands[0];
        sample.operands.insert(sample.operands.end(), {q, f32({q.shape[0], q.shape[2], q.shape[1]}), q});
        sample.draws = {{}, {}, {}, {}, Draw{1.5, 2.5}};  // test values for lse, a log of a sum of a few numbers near 1
    }
    return samples;
}

}  // namespace

std::vector<OpDef> attention_ops() {
    const std::vector<AttributeDef> attributes{flag("causal"), number("scale"), integer("window")};
    return {
        {.name = "rope",
         .operands = {"x"},
         .types = "f -> f",
         .attributes = {number("theta", 10000.0), flag("inverse"), integer("start"), number("factor"),
                        number("low_freq_factor"), number("high_freq_factor"), integer("original_positions")},
         .infer = infer_rope,
         .rule = rope_rule,
         .gradient = grad_rope,
         .flops = some_flops,
         .in_place = {{0, 0}},
         .indexed = OperandRef{false, 0},
         .samples = rotations},
        {.name = "attention",
         .operands = {"q", "k", "v"},
         .types = "f f f -> f s",
         .attributes = attributes,
         .infer = infer_attention,
         .rule = heads_rule,
         .gradient = grad_attention,
         .flops = attention_flops,
         .product = true,
         .work = Work::attention,
         .samples = attentions},
        {.name = "attention_grad",
         .operands = {"q", "k", "v", "o", "lse", "do"},
         .types = "f f f f s f -> f f f",
         .attributes = attributes,
         .infer = infer_attention_grad,
         .rule = heads_rule,
         .flops = attention_grad_flops,
         .work = Work::attention_gradient,
         .samples = attention_gradients},
    };
}

}  // namespace orrery::ops
