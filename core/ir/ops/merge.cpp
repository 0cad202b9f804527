// The merge of two attentions of the same queries over disjoint keys: o [B,T,H,D], lse f32 [B,H,T] (ops/attention.cpp).
#include <fmt/format.h>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

/// Checks o_a, lse_a, o_b, lse_b, and returns the types of the merged o, in f32, and lse.
std::vector<Typed> check_parts(Infer& at) {
    for (const size_t o : {0, 2}) at.expect_rank(o, 4, 4);
    for (const size_t lse : {1, 3}) at.expect_rank(lse, 3, 3);
    Typed o = at.typed(0), lse = at.typed(1);
    for (int d = 0; d < 4; ++d) o.dims[d] = at.same_dim(0, d, 2, d, "dims of the two o");
    for (int d = 0; d < 3; ++d) {
        lse.dims[d] = at.same_dim(1, d, 3, d, "dims of the two lse");
        at.same_dim(0, d == 0 ? 0 : 3 - d, 1, d, "dims of o and lse");
    }
    o.type.dtype = lse.type.dtype;
    return {o, lse};
}

std::vector<Typed> infer_merge(Infer& at) { return check_parts(at); }

std::vector<Typed> infer_merge_grad(Infer& at) {
    const std::vector<Typed> merged = check_parts(at);
    if (at.type(4) != merged[0].type) at.fail(fmt::format("{} is not the gradient of {}", at.show(4), at.show(0)));
    if (at.count() > 5) at.same_type(1, 5);
    return {at.typed(0), at.typed(1), at.typed(2), at.typed(3)};
}

FactorRule merge_rule(const Program& program, const Op& op) {
    const Shape& o = shape_of(program, op.inputs[0]);
    RuleMaker make;
    const auto batch = make.parallel(o[0]), queries = make.parallel(o[1]), heads = make.parallel(o[2]);
    const FactorRule::Dims like_o{batch, queries, heads, make.whole(o[3])}, lse{batch, heads, queries};
    for (size_t i = 0; i < op.inputs.size(); ++i) make.rule.inputs.push_back(i % 2 == 0 ? like_o : lse);
    for (size_t i = 0; i < op.outputs.size(); ++i) make.rule.outputs.push_back(i % 2 == 0 ? like_o : lse);
    return make.rule;
}

void grad_merge(Backward& g) {
    std::vector<ValueId> inputs{g.in(0), g.in(1), g.in(2), g.in(3), g.dy()};
    if (g.has_dy(1)) inputs.push_back(g.dy(1));
    const std::vector<ValueId> d = g.add("merge_grad", inputs);
    for (size_t i = 0; i < d.size(); ++i) g.give(i, d[i]);
}

Samples merges() { return {{{f32({2, 3, 4, 5}), f32({2, 4, 3}), f32({2, 3, 4, 5}), f32({2, 4, 3})}}}; }
Samples merge_grads() {
    Samples samples = merges();
    samples[0].operands.push_back(f32({2, 3, 4, 5}));
    samples.push_back(samples[0]);
    samples[1].operands.push_back(f32({2, 4, 3}));
    return samples;
}

}  // namespace

std::vector<OpDef> merge_ops() {
    return {
        {.name = "merge",
         .operands = {"o_a", "lse_a", "o_b", "lse_b"},
         .types = "F s F s -> s s",
         .infer = infer_merge,
         .rule = merge_rule,
         .gradient = grad_merge,
         .flops = some_flops,
         .in_place = {{0, 0}, {0, 2}},
         .samples = merges},
        {.name = "merge_grad",
         .operands = {"o_a", "lse_a", "o_b", "lse_b", "do", "dlse?"},
         .types = "F s F s s s? -> F s F s",
         .infer = infer_merge_grad,
         .rule = merge_rule,
         .flops = some_flops,
         .samples = merge_grads},
    };
}

}  // namespace orrery::ops
