// Fused softmax cross entropy: logits [..., V], targets i32 [...] -> loss_sum, count (, dlogits in place).
#include "ir/describe.h"
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_cross_entropy(Infer& at) {
    at.expect_float(0);
    at.expect_dtype(1, DType::i32);
    at.expect_rank(0, at.rank(1) + 1, at.rank(1) + 1);
    Typed logits = at.typed(0);
    for (int d = 0; d < at.rank(1); ++d) logits.dims[static_cast<size_t>(d)] = at.same_dim(0, d, 1, d, "row dims");
    std::vector<Typed> result(2, make_typed(DType::f32, {}, {}));
    if (at.attributes.flag("grad")) result.push_back(logits);
    return result;
}

Rule cross_entropy_rule(const Program& program, const Op& op) {
    RuleMaker make;
    Rule::Dims rows;
    for (int64_t size : shape_of(program, op.inputs[1])) rows.push_back(make.contracted(size));
    Rule::Dims logits = rows;
    logits.push_back(make.whole(shape_of(program, op.inputs[0]).back()));
    make.rule.inputs = {logits, rows};
    make.rule.outputs = {{}, {}};
    if (op.outputs.size() > 2) make.rule.outputs.push_back(logits);
    return make.rule;
}

// The forward op itself makes dlogits, over the logits: a second copy of them is never held.
ValueId dlogits_of(Backward& g) {
    if (g.op().outputs.size() > 2) return g.out(2);
    const OpId id = g.program().value(g.out(0)).op;
    Program& program = g.program();
    Value value;
    value.type = g.type(g.in(0));
    value.dims = program.value(g.in(0)).dims;
    value.op = id;
    value.output = 2;
    value.origin = g.op().origin;
    const ValueId result = g.append(std::move(value));
    Op& op = program.ops[static_cast<size_t>(id)];
    op.attributes.set("grad", true);
    op.outputs.push_back(result);
    return result;
}

void grad_cross_entropy(Backward& g) {
    if (!g.has_dy(0) || !g.wants(0)) return;
    if (g.op().outputs.size() > 2 && g.has_dy(2)) g.expect_no_dy(2, "dlogits");
    const auto c = g.uniform();
    const ValueId dlogits = dlogits_of(g);
    if (c && *c == 1) {
        g.give(0, dlogits);
    } else if (c) {
        g.give(0, g.one("scale", {dlogits}, {{"by", *c}}));
    } else {
        g.give(0, g.one("mul", {dlogits, g.cast(g.dy(), g.type(dlogits).dtype)}));
    }
}

int64_t cross_entropy_flops(const Program& program, const Op& op) {
    return 10 * program.value(op.inputs[0]).type.count();
}

}  // namespace

std::vector<OpDef> cross_entropy_ops() {
    return {
        {.name = "cross_entropy",
         .operands = {"logits", "targets"},
         .attributes = {flag("grad"), integer("ignore", int64_t{-1})},
         .infer = infer_cross_entropy,
         .rule = cross_entropy_rule,
         .gradient = grad_cross_entropy,
         .flops = cross_entropy_flops,
         .in_place = {{2, 0}},
         .constant_outputs = {1},
         .indexed = OperandRef{false, 0}},
    };
}

}  // namespace orrery::ops
