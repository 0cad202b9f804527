// GEMMs and their gradients. m rows, k inner dim, n columns, `...` leading dims.
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

bool trans_a(const Attributes& attributes) { return attributes.flag("trans_a"); }
bool trans_b(const Attributes& attributes) { return attributes.flag("trans_b"); }

// Where dims m and k are in operand a [...,m,k], and k and n in b [...,k,n]. A transposed operand has them swapped.
struct Places {
    int am, ak, bk, bn;
};

Places places(const Attributes& attributes, int rank_a, int rank_b) {
    Places at{rank_a - 2, rank_a - 1, rank_b - 2, rank_b - 1};
    if (trans_a(attributes)) std::swap(at.am, at.ak);
    if (trans_b(attributes)) std::swap(at.bk, at.bn);
    return at;
}

// Checks operands a and b of a GEMM and infers y [...,m,n]. A b with two dims is used for all leading dims of a.
Typed infer_product(Infer& at) {
    at.expect_same_dtype(0, 1);
    at.expect_rank(0, 2);
    at.expect_rank(1, 2);
    const bool shared = at.rank(1) == 2;
    if (!shared && at.rank(0) != at.rank(1)) {
        at.fail(fmt::format("leading dims differ: {} and {}", at.show(0), at.show(1)),
                "b has 2 dims, or the same leading dims as a");
    }
    if (shared && at.rank(0) > 2 && trans_a(at.attributes)) {
        at.fail(fmt::format("trans_a needs an a of 2 dims when b has 2: {} and {}", at.show(0), at.show(1)));
    }
    const Places p = places(at.attributes, at.rank(0), at.rank(1));
    Typed y = at.typed(0);
    for (int d = 0; !shared && d + 2 < at.rank(0); ++d) {
        y.dims[d] = at.same_dim(0, d, 1, d, "leading dims");
    }
    at.same_dim(0, p.ak, 1, p.bk, "inner dims");
    const size_t m = y.type.shape.size() - 2;
    y.type.shape[m] = at.shape(0)[p.am];
    y.dims[m] = at.dims(0)[p.am];
    y.type.shape[m + 1] = at.shape(1)[p.bn];
    y.dims[m + 1] = at.dims(1)[p.bn];
    y.type.dtype = at.dtype_attribute(at.dtype(0));
    return y;
}

Typed infer_biased(Infer& at) {
    Typed y = infer_product(at);
    if (at.count() == 2) return y;
    if (at.rank(1) != 2)
        at.fail(fmt::format("a bias needs an operand b of 2 dims, got {}", at.show(1)), "add it afterwards");
    at.expect_rank(2, 1, 1);
    at.expect_same_dtype(0, 2);
    y.dims.back() = at.same_dim(1, places(at.attributes, at.rank(0), 2).bn, 2, 0, "bias and columns");
    return y;
}

std::vector<Typed> infer_matmul(Infer& at) { return {infer_biased(at)}; }

std::vector<Typed> infer_bias_gelu(Infer& at) {
    const Typed y = infer_biased(at);
    return at.attributes.flag("drop_pre") ? std::vector{y} : std::vector{y, y};
}

std::vector<Typed> infer_gelu_grad(Infer& at) {
    const Typed dx = infer_product(at);
    at.expect_same_dtype(0, 2);
    if (at.type(2) != dx.type)
        at.fail(fmt::format("pre {} must have the type and shape of the matrix product", at.show(2)));
    return {dx};
}

// The factor rule of operands a, b and the outputs of a GEMM, without a bias.
FactorRule pair_rule(const Program& program, const Op& op) {
    const Shape& a = shape_of(program, op.inputs[0]);
    const Shape& b = shape_of(program, op.inputs[1]);
    const Places p = places(op.attributes, a.size(), b.size());
    RuleMaker make;
    FactorRule::Dims da(a.size());
    FactorRule::Dims db(b.size());
    FactorRule::Dims dy(a.size());
    for (size_t d = 0; d + 2 < a.size(); ++d) {
        da[d] = dy[d] = make.parallel(a[d]);
        if (b.size() > 2) db[d] = da[d];
    }
    const auto m = make.parallel(a[p.am]);
    const auto n = make.parallel(b[p.bn]);
    const auto k = make.contracted(a[p.ak]);
    da[p.am] = dy[a.size() - 2] = m;
    da[p.ak] = db[p.bk] = k;
    db[p.bn] = dy[a.size() - 1] = n;
    make.rule.inputs = {da, db};
    make.rule.outputs.assign(op.outputs.size(), dy);
    return make.rule;
}

FactorRule product_rule(const Program& program, const Op& op) {
    FactorRule rule = pair_rule(program, op);
    if (op.inputs.size() > 2) {
        rule.inputs.push_back({rule.outputs[0].back()});
        rule.added_once = {2};
    }
    return rule;
}

// The factor rule of matmul_gelu_grad. gelu'(pre) (P + Q) = gelu'(pre) P + gelu'(pre) Q: the inner dim may be split.
FactorRule gelu_grad_rule(const Program& program, const Op& op) {
    FactorRule rule = pair_rule(program, op);
    rule.inputs.push_back(rule.outputs[0]);
    return rule;
}

// The factor rule of matmul_bias_gelu. gelu(P + Q) is not gelu(P) + gelu(Q), so the inner dim must be whole.
FactorRule bias_gelu_rule(const Program& program, const Op& op) {
    FactorRule rule = product_rule(program, op);
    for (Factor& factor : rule.factors) {
        if (factor.kind == Factor::Kind::contracted) factor.kind = Factor::Kind::whole;
    }
    rule.added_once.clear();
    return rule;
}

int64_t product_flops(const Program& program, const Op& op) {
    const Shape& a = shape_of(program, op.inputs[0]);
    const Places p = places(op.attributes, a.size(), rank_of(program, op.inputs[1]));
    return 2 * program.value(op.outputs[0]).type.count() * a[p.ak];
}

// The gradients of y = A B with A = a or its transpose, B likewise: dA = dy B^T, dB = A^T dy, transposed like a and b.
void product_gradient(Backward& g, ValueId dy) {
    const ValueId a = g.in(0);
    const ValueId b = g.in(1);
    const bool ta = trans_a(g.attributes());
    const bool tb = trans_b(g.attributes());
    const bool shared = g.rank(b) == 2;
    auto flags = [](bool first, bool second) { return Attributes{{"trans_a", first}, {"trans_b", second}}; };
    if (g.wants(0))
        g.give(0, ta ? g.one("matmul", {b, dy}, flags(tb, true)) : g.one("matmul", {dy, b}, flags(false, !tb)));
    if (g.wants(1)) {
        if (shared && !ta) {  // the gradient of a weight is f32 for every type of operands
            const std::vector<ValueId> operands = tb ? std::vector{dy, a} : std::vector{a, dy};
            g.give(1, g.one("matmul_dw", operands, {{"dtype", std::string("f32")}}));
        } else {
            g.give(1, tb ? g.one("matmul", {dy, a}, flags(true, ta)) : g.one("matmul", {a, dy}, flags(!ta, false)));
        }
    }
    if (g.count() > 2 && g.wants(2)) g.give(2, g.sum_to(dy, g.in(2)));
}

void grad_matmul(Backward& g) { product_gradient(g, g.cast(g.dy(), g.type(g.in(0)).dtype)); }

void grad_bias_gelu(Backward& g) {
    if (g.op().outputs.size() < 2)
        throw Error(g.op().origin,
                    "matmul_bias_gelu with drop_pre has no gradient: it does not store pre; remove drop_pre");
    g.expect_no_dy(1, "pre");
    const Attributes approx{{"approx", g.attributes().text("approx")}};
    product_gradient(g, g.cast(g.one("gelu_grad", {g.out(1), g.dy()}, approx), g.type(g.in(0)).dtype));
}

// The gradient of a weight: a [...,k], dy [...,n] -> dw [k,n].
std::vector<Typed> infer_dw(Infer& at) {
    at.expect_same_dtype(0, 1);
    at.expect_rank(0, 1);
    if (at.rank(0) != at.rank(1)) at.fail(fmt::format("leading dims differ: {} and {}", at.show(0), at.show(1)));
    for (int d = 0; d + 1 < at.rank(0); ++d) at.same_dim(0, d, 1, d, "leading dims");
    return {make_typed(at.dtype_attribute(DType::f32), {at.shape(0).back(), at.shape(1).back()},
                       {at.dims(0).back(), at.dims(1).back()})};
}

FactorRule dw_rule(const Program& program, const Op& op) {
    const Shape& a = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims da(a.size());
    for (size_t d = 0; d + 1 < a.size(); ++d) da[d] = make.contracted(a[d]);
    FactorRule::Dims dy = da;
    da.back() = make.parallel(a.back());
    dy.back() = make.parallel(shape_of(program, op.inputs[1]).back());
    make.rule.inputs = {da, dy};
    make.rule.outputs = {{da.back(), dy.back()}};
    return make.rule;
}

// The gradients of a weight and its bias: dw [k,n], and dbias [n], the sum of dy over all rows.
std::vector<Typed> infer_dw_bias(Infer& at) {
    std::vector<Typed> made = infer_dw(at);
    made.push_back(make_typed(DType::f32, {at.shape(1).back()}, {at.dims(1).back()}));
    return made;
}

FactorRule dw_bias_rule(const Program& program, const Op& op) {
    FactorRule rule = dw_rule(program, op);
    rule.outputs.push_back({rule.outputs[0].back()});
    return rule;
}

int64_t dw_flops(const Program& program, const Op& op) {
    return 2 * program.value(op.inputs[0]).type.count() * shape_of(program, op.inputs[1]).back();
}

Samples products() {
    const Attributes a{{"trans_a", true}}, b{{"trans_b", true}}, both{{"trans_a", true}, {"trans_b", true}};
    return {{{f32({6, 15}), f32({15, 9})}},
            {{f32({6, 15}), f32({15, 33}), f32({33})}},
            {{f32({4, 3, 6}), f32({6, 9}), f32({9})}},
            {{f32({4, 3, 6}), f32({9, 6}), f32({9})}, b},
            {{f32({4, 3, 6}), f32({4, 6, 9})}},
            {{f32({2, 3, 6, 4}), f32({2, 3, 6, 9})}, a},
            {{f32({4, 3, 6}), f32({4, 9, 6})}, b},
            {{f32({4, 6, 3}), f32({4, 9, 6})}, both},
            {{f32({15, 6}), f32({15, 9}), f32({9})}, a},
            {{f32({6, 15}), f32({9, 15})}, b},
            {{f32({15, 6}), f32({9, 15})}, both}};
}
Samples biased_products() {
    const std::vector<TensorType> operands{f32({4, 9, 6}), f32({6, 15}), f32({15})};
    return {{operands}, {operands, {{"approx", std::string("erf")}, {"drop_pre", true}}}};
}
Samples gelu_products() {
    const std::vector<TensorType> operands{f32({4, 9, 6}), f32({15, 6}), f32({4, 9, 15})};
    return {{operands, {{"trans_b", true}}}, {operands, {{"approx", std::string("erf")}, {"trans_b", true}}}};
}
Samples weight_gradients() { return {{{f32({4, 9, 6}), f32({4, 9, 33})}}, {{f32({9, 6}), f32({9, 15})}}}; }

}  // namespace

std::vector<OpDef> matmul_ops() {
    return {
        {.name = "matmul",
         .operands = {"a", "b", "bias?"},
         .types = "F F F? -> F",
         .attributes = {flag("trans_a"), flag("trans_b"), text("dtype")},
         .infer = infer_matmul,
         .rule = product_rule,
         .gradient = grad_matmul,
         .flops = product_flops,
         .accumulates = {0},
         .product = true,
         .work = Work::product,
         .swaps = {"trans_a", "trans_b"},
         .quantized = "matmul_quantized",
         .samples = products},
        {.name = "matmul_dw",
         .operands = {"a", "dy"},
         .types = "F F -> F",
         .attributes = {text("dtype")},
         .infer = infer_dw,
         .rule = dw_rule,
         .flops = dw_flops,
         .accumulates = {0},
         .work = Work::weight_product,
         .quantized = "matmul_dw_quantized",
         .samples = weight_gradients},
        {.name = "matmul_bias_gelu",
         .operands = {"a", "b", "bias"},
         .types = "F F F -> f f?",
         .attributes = {flag("trans_a"), flag("trans_b"), text("dtype"), text("approx", {"tanh", "erf"}, "tanh"),
                        flag("drop_pre")},
         .infer = infer_bias_gelu,
         .rule = bias_gelu_rule,
         .gradient = grad_bias_gelu,
         .flops = product_flops,
         .product = true,
         .work = Work::product,
         .fused_of = {"matmul", "gelu"},
         .samples = biased_products},
        {.name = "matmul_gelu_grad",
         .operands = {"a", "b", "pre"},
         .types = "F F F -> F",
         .attributes = {flag("trans_a"), flag("trans_b"), text("approx", {"tanh", "erf"}, "tanh")},
         .infer = infer_gelu_grad,
         .rule = gelu_grad_rule,
         .flops = product_flops,
         .work = Work::product,
         .samples = gelu_products},
        {.name = "matmul_dw_bias",
         .operands = {"a", "dy"},
         .types = "F F -> F s",
         .attributes = {text("dtype")},
         .infer = infer_dw_bias,
         .rule = dw_bias_rule,
         .flops = dw_flops,
         .accumulates = {0, 1},
         .work = Work::weight_product,
         .samples = weight_gradients},
    };
}

}  // namespace orrery::ops
