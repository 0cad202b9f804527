// GEMMs of a mixture of experts: each row is multiplied by the matrix of its expert. G leading dims (groups of tokens),
// E experts, S slots of an expert in a group, R rows, K inner dim, N columns. Only as many rows of an expert count as
// `counts` says; the others are neither read nor multiplied, and their results are 0.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/flops.h"
#include "ir/ops/common.h"
#include "ir/ops/dispatch.h"

namespace orrery::ops {

namespace {

// x [R,K] holds the rows of all experts in order; otherwise x [G...,E,S,K] has S slots for each expert.
bool sorted(const Shape& x) { return x.size() == 2; }

// Checks x [G...,E,S,K] and counts [G...,E], or x [R,K] and counts [E]. Returns the dim names of x, completed.
std::vector<std::string> match_counts(Infer& at, size_t counts) {
    at.expect_rank(0, 2);
    std::vector<std::string> names = at.dims(0);
    const int leading = sorted(at.shape(0)) ? 1 : at.rank(0) - 2;
    at.expect_rank(counts, leading, leading);
    for (int d = 0; !sorted(at.shape(0)) && d < leading; ++d)
        names[d] = at.same_dim(0, d, counts, d, d + 1 < leading ? "leading dims" : "experts");
    return names;
}

std::vector<Typed> infer_grouped(Infer& at) {
    Typed y{at.type(0), match_counts(at, 2)};
    at.expect_rank(1, 3, 3);
    const bool transposed = at.attributes.flag("trans_b");
    const int experts = at.rank(2) - 1, last = at.rank(0) - 1, k = transposed ? 2 : 1, n = transposed ? 1 : 2;
    const std::string expert = at.same_dim(1, 0, 2, experts, "experts");
    if (!sorted(at.shape(0)) && y.dims[experts].empty()) y.dims[experts] = expert;
    at.same_dim(0, last, 1, k, "inner dims");
    y.type.shape[last] = at.shape(1)[n];
    y.dims[last] = at.dims(1)[n];
    return {y};
}

// The factors of x and counts. Rows and slots are whole: each belongs to an expert and a place that counts refer to.
struct GroupedRule {
    RuleMaker make;
    FactorRule::Dims rows, counts;  // dims of x without the last one, and of counts
    std::vector<int> experts;

    GroupedRule(const Program& program, const Op& op, size_t counted, Factor::Kind groups) {
        const Shape& x = shape_of(program, op.inputs[0]);
        const Shape& c = shape_of(program, op.inputs[counted]);
        for (size_t d = 0; d + 1 < c.size(); ++d) counts.push_back(make.dim(groups, c[d]));
        experts = sorted(x) ? make.whole(c.back()) : make.parallel(c.back());
        counts.push_back(experts);
        if (!sorted(x)) rows = counts;
        rows.push_back(make.whole(x[x.size() - 2]));
    }
    FactorRule::Dims with(const std::vector<int>& last) const {
        FactorRule::Dims dims = rows;
        dims.push_back(last);
        return dims;
    }
};

FactorRule grouped_rule(const Program& program, const Op& op) {
    GroupedRule at(program, op, 2, Factor::Kind::parallel);
    const auto k = at.make.contracted(shape_of(program, op.inputs[0]).back());
    const auto n = at.make.parallel(shape_of(program, op.outputs[0]).back());
    const bool transposed = op.attributes.flag("trans_b");
    at.make.rule.inputs = {at.with(k), {at.experts, transposed ? n : k, transposed ? k : n}, at.counts};
    at.make.rule.outputs = {at.with(n)};
    return at.make.rule;
}

// Rows of x that can count: all, or as many as tokens have choices if those are fewer.
int64_t rows_of(const Program& program, const Op& op) {
    const Shape& x = shape_of(program, op.inputs[0]);
    const int64_t rows = program.value(op.inputs[0]).type.count() / x.back();
    const Op* choices = assigned(program, op.inputs[2]);
    return choices ? std::min(rows, program.value(choices->inputs[0]).type.count()) : rows;
}

int64_t grouped_flops(const Program& program, const Op& op) {
    return 2 * rows_of(program, op) * shape_of(program, op.inputs[0]).back() * shape_of(program, op.outputs[0]).back();
}

// dx = dy w^T by rows, and dw[e] = x^T dy over the rows of expert e. Rows that do not count get 0 and add nothing.
void grad_grouped(Backward& g) {
    const ValueId dy = g.cast(g.dy(), g.type(g.in(0)).dtype), counts = g.in(2);
    const bool transposed = g.attributes().flag("trans_b");
    if (g.wants(0)) g.give(0, g.one("grouped_matmul", {dy, g.in(1), counts}, {{"trans_b", !transposed}}));
    if (g.wants(1)) {  // the gradient of a weight is f32 for every type of operands
        const ValueId first = transposed ? dy : g.in(0), second = transposed ? g.in(0) : dy;
        g.give(1, g.one("grouped_matmul_dw", {first, second, counts}, {{"dtype", std::string("f32")}}));
    }
}

// The gradient of the experts' weights: a [G...,E,S,K], dy [G...,E,S,N] -> dw [E,K,N].
std::vector<Typed> infer_grouped_dw(Infer& at) {
    at.expect_rank(1, at.rank(0), at.rank(0));
    const std::vector<std::string> names = match_counts(at, 2);
    for (int d = 0; d + 1 < at.rank(0); ++d) at.same_dim(0, d, 1, d, "leading dims");
    const int experts = at.rank(2) - 1;
    const std::string& expert = sorted(at.shape(0)) ? at.dims(2)[experts] : names[experts];
    return {make_typed(at.dtype_attribute(DType::f32), {at.shape(2)[experts], at.shape(0).back(), at.shape(1).back()},
                       {expert, at.dims(0).back(), at.dims(1).back()})};
}

FactorRule grouped_dw_rule(const Program& program, const Op& op) {
    GroupedRule at(program, op, 2, Factor::Kind::contracted);
    const auto k = at.make.parallel(shape_of(program, op.inputs[0]).back());
    const auto n = at.make.parallel(shape_of(program, op.inputs[1]).back());
    at.make.rule.inputs = {at.with(k), at.with(n), at.counts};
    at.make.rule.outputs = {{at.experts, k, n}};
    return at.make.rule;
}

int64_t grouped_dw_flops(const Program& program, const Op& op) {
    return 2 * rows_of(program, op) * shape_of(program, op.inputs[0]).back() * shape_of(program, op.inputs[1]).back();
}

// Counts below 0 mean 0, and those above the slots all slots. The sums of sorted rows may be less or more than the
// rows.
Samples grouped_products() {
    const Attributes b{{"trans_b", true}};
    const Draw slots{-1, 10}, rows{0, 12};
    return {{.operands = {f32({4, 9, 6}), f32({4, 6, 15}), i32({4})}, .draws = {{}, {}, slots}},
            {.operands = {f32({2, 4, 9, 6}), f32({4, 6, 15}), i32({2, 4})}, .draws = {{}, {}, slots}},
            {.operands = {f32({3, 2, 4, 9, 6}), f32({4, 15, 6}), i32({3, 2, 4})},
             .attributes = b,
             .draws = {{}, {}, slots}},
            {.operands = {f32({33, 6}), f32({4, 6, 15}), i32({4})}, .draws = {{}, {}, rows}},
            {.operands = {f32({33, 6}), f32({4, 15, 6}), i32({4})}, .attributes = b, .draws = {{}, {}, Draw{5, 5}}}};
}
Samples grouped_gradients() {
    const Draw slots{-1, 10}, rows{0, 12};
    return {{.operands = {f32({4, 9, 6}), f32({4, 9, 15}), i32({4})}, .draws = {{}, {}, slots}},
            {.operands = {f32({2, 4, 9, 6}), f32({2, 4, 9, 15}), i32({2, 4})}, .draws = {{}, {}, slots}},
            {.operands = {f32({33, 6}), f32({33, 15}), i32({4})}, .draws = {{}, {}, rows}}};
}

}  // namespace

std::vector<OpDef> grouped_matmul_ops() {
    return {
        {.name = "grouped_matmul",
         .operands = {"x", "w", "counts"},
         .types = "f f i -> f",
         .attributes = {flag("trans_b")},
         .infer = infer_grouped,
         .rule = grouped_rule,
         .gradient = grad_grouped,
         .flops = grouped_flops,
         .product = true,
         .work = Work::product,
         .samples = grouped_products},
        {.name = "grouped_matmul_dw",
         .operands = {"x", "dy", "counts"},
         .types = "f f i -> F",
         .attributes = {text("dtype")},
         .infer = infer_grouped_dw,
         .rule = grouped_dw_rule,
         .flops = grouped_dw_flops,
         .accumulates = {0},
         .work = Work::weight_product,
         .samples = grouped_gradients},
    };
}

}  // namespace orrery::ops

namespace orrery {

int64_t active_parameters(const Program& program) {
    int64_t count = 0;
    for (const ValueId id : program.params()) count += program.value(id).type.count();
    std::set<ValueId> experts;
    for (const Op& op : program.ops) {
        if (op.kind != "grouped_matmul" || op.phase != Phase::forward) continue;
        const Op* choices = ops::assigned(program, op.inputs[2]);
        ValueId w = op.inputs[1];
        while (program.value(w).op != none && program.op(program.value(w).op).inputs.size() == 1)
            w = program.op(program.value(w).op).inputs[0];  // of a cast or a collective
        if (!choices || program.value(w).role != Role::param || !experts.insert(w).second) continue;
        const Shape& shape = program.value(w).type.shape;
        const int64_t chosen = std::min(shape[0], program.value(choices->inputs[0]).type.shape.back());
        count -= program.value(w).type.count() / shape[0] * (shape[0] - chosen);
    }
    return count;
}

}  // namespace orrery
