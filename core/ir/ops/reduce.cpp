// Reductions: sum and max over dims, sumsq and all_finite over all elements.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

// The dims that a reduction reduces, sorted; all if the attribute names none. Stores them in the attribute.
std::vector<int64_t> reduced_dims(Infer& at) {
    std::vector<int64_t> dims = at.attributes.integers("dims");
    if (!at.attributes.has("dims")) {
        dims.resize(at.shape(0).size());
        std::iota(dims.begin(), dims.end(), 0);
    }
    for (int64_t& d : dims) {
        const int64_t given = d;
        if (d < 0) d += at.rank(0);
        if (d < 0 || d >= at.rank(0)) at.fail(fmt::format("{} is not a dim of {}", given, at.show(0)));
    }
    std::sort(dims.begin(), dims.end());
    if (std::adjacent_find(dims.begin(), dims.end()) != dims.end()) at.fail("a dim is given twice", at.show(0));
    at.attributes.set("dims", dims);
    return dims;
}

std::vector<Typed> infer_reduce(Infer& at) {
    const std::vector<int64_t> dims = reduced_dims(at);
    const bool keep = at.attributes.flag("keep");
    Typed y;
    y.type.dtype = at.dtype_attribute(at.dtype(0));
    for (int d = 0; d < at.rank(0); ++d) {
        const bool reduced = std::binary_search(dims.begin(), dims.end(), d);
        if (reduced && !keep) continue;
        y.type.shape.push_back(reduced ? 1 : at.shape(0)[d]);
        y.dims.push_back(at.dims(0)[d]);
    }
    return {y};
}

FactorRule reduce_rule(const Program& program, const Op& op) {
    const Shape& x = shape_of(program, op.inputs[0]);
    const std::vector<int64_t> dims = op.attributes.integers("dims");
    const bool keep = op.attributes.flag("keep");
    const ReduceOp reduce = op.kind == "max" ? ReduceOp::max : ReduceOp::sum;
    RuleMaker make;
    FactorRule::Dims in;
    FactorRule::Dims out;
    for (size_t d = 0; d < x.size(); ++d) {
        const bool reduced = std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(d));
        in.push_back(reduced ? make.contracted(x[d], reduce) : make.parallel(x[d]));
        if (!reduced) out.push_back(in.back());
        if (reduced && keep) out.emplace_back();
    }
    make.rule.inputs = {in};
    make.rule.outputs = {out};
    if (op.kind == "sum") make.rule.linear_in = {0};
    return make.rule;
}

ValueId keep_dims(Backward& g, ValueId y) {
    Shape shape = g.shape(g.in(0));
    for (int64_t d : g.attributes().integers("dims")) shape[d] = 1;
    if (g.shape(y) == shape) return y;
    const ValueId kept = g.one("reshape", {y}, {{"shape", shape}});
    g.program().value(kept).dims = g.program().value(g.in(0)).dims;
    return kept;
}

void grad_sum(Backward& g) {
    if (const auto c = g.uniform()) return g.give_uniform(0, *c);
    const ValueId dy = keep_dims(g, g.cast(g.raw_dy(), g.type(g.in(0)).dtype));
    if (g.shape(dy) == g.shape(g.in(0))) return g.give(0, dy);
    const std::string dtype{name_of(g.type(dy).dtype)};
    const ValueId ones = g.one("full", {}, {{"shape", g.shape(g.in(0))}, {"value", 1.0}, {"dtype", dtype}});
    g.give(0, g.one("mul", {ones, dy}));
}

// Elements that equal the maximum share the maximum's gradient equally.
void grad_max(Backward& g) {
    const DType dtype = g.type(g.in(0)).dtype;
    const ValueId y = keep_dims(g, g.cast(g.out(), dtype));
    const ValueId best = g.one("equal", {g.in(0), y});
    const ValueId winners =
        g.one("sum", {g.cast(best, dtype)}, {{"dims", g.attributes().integers("dims")}, {"keep", true}});
    const ValueId share = g.one("div", {keep_dims(g, g.cast(g.dy(), dtype)), winners});
    g.give(0, g.one("select", {best, share, g.scalar(0, dtype)}));
}

std::vector<Typed> infer_sumsq(Infer&) { return {make_typed(DType::f32, {}, {})}; }

void grad_sumsq(Backward& g) {  // y = sumsq(x): dx = 2 x dy
    if (const auto c = g.uniform()) return g.give(0, g.one("scale", {g.in(0)}, {{"by", 2 * *c}}));
    const ValueId twice = g.one("scale", {g.dy()}, {{"by", 2.0}});
    g.give(0, g.one("mul", {g.in(0), g.cast(twice, g.type(g.in(0)).dtype)}));
}

std::vector<Typed> infer_all_finite(Infer&) { return {make_typed(DType::u8, {}, {})}; }

FactorRule total_rule(const Program& program, const Op& op, ReduceOp reduce) {
    RuleMaker make;
    FactorRule::Dims in;
    for (int64_t size : shape_of(program, op.inputs[0])) in.push_back(make.contracted(size, reduce));
    make.rule.inputs = {in};
    make.rule.outputs = {{}};
    return make.rule;
}

FactorRule sumsq_rule(const Program& program, const Op& op) { return total_rule(program, op, ReduceOp::sum); }
FactorRule all_finite_rule(const Program& program, const Op& op) { return total_rule(program, op, ReduceOp::min); }

int64_t reduce_flops(const Program& program, const Op& op) { return program.value(op.inputs[0]).type.count(); }
int64_t sumsq_flops(const Program& program, const Op& op) { return 2 * reduce_flops(program, op); }

Samples reductions() {
    const std::vector<TensorType> x{f32({4, 9, 6})};
    return {{x},
            {x, {{"dims", Ints{1}}}},
            {x, {{"dims", Ints{-1}}, {"keep", true}}},
            {x, {{"dims", Ints{0, 2}}}},
            {x, {{"dims", Ints{0, 2}}, {"keep", true}}},
            {{f32({33, 4})}, {{"dims", Ints{0}}}}};
}
Samples whole() { return {{{f32({4, 33})}}}; }
Samples finite_and_not() {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    return {{{f32({4, 33})}}, {.operands = {f32({9})}, .draws = {Draw{nan, nan}}}};
}

}  // namespace

std::vector<OpDef> reduce_ops() {
    return {
        {.name = "sum",
         .operands = {"x"},
         .types = "F -> F",
         .attributes = {integers("dims"), flag("keep"), text("dtype")},
         .infer = infer_reduce,
         .rule = reduce_rule,
         .gradient = grad_sum,
         .flops = reduce_flops,
         .accumulates = {0},
         .reduces = true,
         .samples = reductions},
        {.name = "max",
         .operands = {"x"},
         .types = "F -> F",
         .attributes = {integers("dims"), flag("keep")},
         .infer = infer_reduce,
         .rule = reduce_rule,
         .gradient = grad_max,
         .flops = reduce_flops,
         .reduces = true,
         .samples = reductions},
        {.name = "sumsq",
         .operands = {"x"},
         .types = "F -> s",
         .infer = infer_sumsq,
         .rule = sumsq_rule,
         .gradient = grad_sumsq,
         .flops = sumsq_flops,
         .work = Work::once,
         .reduces = true,
         .samples = whole},
        {.name = "all_finite",
         .operands = {"x"},
         .types = "F -> b",
         .infer = infer_all_finite,
         .rule = all_finite_rule,
         .flops = reduce_flops,
         .reduces = true,
         .samples = finite_and_not},
    };
}

}  // namespace orrery::ops
