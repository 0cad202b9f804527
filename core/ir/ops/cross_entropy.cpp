// Softmax cross entropy: logits [...,V], targets i32 [...] -> loss_sum, count (, dlogits in place). It is one fused op
// when each rank has the whole vocabulary. When V is split it is decomposed into four ops:
//   max                  row maxima                                P(max)
//   cross_entropy_stats  sums of exponentials, logits of targets   P(sum)
//   cross_entropy_loss   loss_sum, count
//   cross_entropy_grad   dlogits, in place of the logits
#include "ir/describe.h"
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

std::vector<Typed> infer_cross_entropy(Infer& at) {
    at.expect_rank(0, at.rank(1) + 1, at.rank(1) + 1);
    Typed logits = at.typed(0);
    for (int d = 0; d < at.rank(1); ++d) logits.dims[d] = at.same_dim(0, d, 1, d, "row dims");
    if (at.count() > 2) at.expect_rank(2, 0, 0);
    std::vector<Typed> result(2, make_typed(DType::f32, {}, {}));
    if (at.attributes.flag("grad")) result.push_back(logits);
    return result;
}

FactorRule cross_entropy_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims rows;
    for (int64_t size : shape_of(program, op.inputs[1])) rows.push_back(make.contracted(size));
    FactorRule::Dims logits = rows;
    logits.push_back(make.whole(shape_of(program, op.inputs[0]).back()));
    make.rule.inputs = {logits, rows};
    if (op.inputs.size() > 2) make.rule.inputs.push_back({});
    make.rule.outputs = {{}, {}};
    if (op.outputs.size() > 2) make.rule.outputs.push_back(logits);
    return make.rule;
}

// Returns dlogits. The forward op computes them in the memory of the logits, so that both never exist at once.
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
    Op& op = program.ops[id];
    op.attributes.set("grad", true);
    op.outputs.push_back(result);
    return result;
}

// Whether a gradient exists before the loss op (it is a loss scale): the op then scales dlogits by it before rounding.
bool known_before(const Backward& g, ValueId dy) {
    const Value& value = g.program().value(dy);
    return value.role != Role::temporary && value.type == TensorType{DType::f32, {}};
}

void grad_cross_entropy(Backward& g) {
    if (g.op().outputs.size() > 2) g.expect_no_dy(2, "dlogits");
    if (!g.has_dy(0) || !g.wants(0)) return;
    const auto c = g.uniform();
    const bool fresh = g.op().outputs.size() == 2 && g.count() == 2;
    const ValueId dlogits = dlogits_of(g);
    if (!c && fresh && known_before(g, g.dy())) {
        g.program().ops[g.program().value(dlogits).op].inputs.push_back(g.dy());
        return g.give(0, dlogits);
    }
    g.give(0, times_dy(g, dlogits, g.type(dlogits).dtype));
}

/// Replaces the loss by ops on a rank's part of the vocabulary, which exchange three statistics per row, not logits.
bool decompose_cross_entropy(const OpLayouts& at, const AddPart& add) {
    if (at.inputs[0].splits().back().empty()) return false;
    const Op& op = at.op;
    const ValueId logits = op.inputs[0], targets = op.inputs[1];
    const Attributes ignore{{"ignore", *op.attributes.find("ignore")}};  // inference always stores a value for it
    const int64_t last = rank_of(at.program, logits) - 1;
    const ValueId top = add("max", {logits}, {{"dims", Ints{last}}}, {})[0];
    const auto stats = add("cross_entropy_stats", {logits, top, targets}, ignore, {});
    add("cross_entropy_loss", {top, stats[0], stats[1], targets}, ignore, {op.outputs[0], op.outputs[1]});
    if (op.outputs.size() == 2) return true;
    std::vector<ValueId> inputs{logits, top, stats[0], targets};
    if (op.inputs.size() > 2) inputs.push_back(op.inputs[2]);
    add("cross_entropy_grad", std::move(inputs), ignore, {op.outputs[2]});
    return true;
}

std::vector<Typed> infer_stats(Infer& at) {
    at.expect_rank(0, at.rank(2) + 1, at.rank(2) + 1);
    at.expect_rank(1, at.rank(2), at.rank(2));
    Typed rows = at.typed(2);
    rows.type.dtype = DType::f32;
    for (int d = 0; d < at.rank(2); ++d) rows.dims[d] = at.same_dim(0, d, 2, d, "row dims");
    return {rows, rows};
}

std::vector<Typed> infer_loss(Infer& at) {
    for (size_t i = 0; i < 3; ++i) at.expect_rank(i, at.rank(3), at.rank(3));
    return std::vector<Typed>(2, make_typed(DType::f32, {}, {}));
}

std::vector<Typed> infer_dlogits(Infer& at) {
    at.expect_rank(0, at.rank(3) + 1, at.rank(3) + 1);
    if (at.count() > 4) at.expect_rank(4, 0, 0);
    return {at.typed(0)};
}

/// The factor rule of ops on logits (input 0): rows and vocabulary may be split. Other operands have one value per row.
FactorRule sharded_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims rows;
    FactorRule::Dims logits;
    const Shape& shape = shape_of(program, op.inputs[0]);
    for (size_t d = 0; d + 1 < shape.size(); ++d) rows.push_back(make.parallel(shape[d]));
    logits = rows;
    logits.push_back(make.dim(Factor::Kind::index, shape.back()));
    for (ValueId id : op.inputs) {
        const size_t rank = shape_of(program, id).size();
        make.rule.inputs.push_back(rank == shape.size() ? logits : rank == 0 ? FactorRule::Dims{} : rows);
    }
    make.rule.inputs[0] = logits;
    for (ValueId id : op.outputs)
        make.rule.outputs.push_back(shape_of(program, id).size() == shape.size() ? logits : rows);
    return make.rule;
}

FactorRule loss_rule(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims rows;
    for (int64_t size : shape_of(program, op.inputs[3])) rows.push_back(make.contracted(size));
    make.rule.inputs.assign(4, rows);
    make.rule.outputs = {{}, {}};
    return make.rule;
}

int64_t loss_flops(const Program& program, const Op& op) { return 10 * program.value(op.inputs[0]).type.count(); }

int64_t cross_entropy_flops(const Program& program, const Op& op) {
    return 10 * program.value(op.inputs[0]).type.count();
}

constexpr Draw targets{-1, 8};  // test values; -1: the row is ignored
constexpr Draw tops{1.5, 2};    // test values for row maxima, above the range of the logits
constexpr Draw totals{1, 3};    // test values for sums of exponentials

Samples losses() {
    const TensorType logits = f32({4, 6, 9}), rows = i32({4, 6});
    return {{.operands = {logits, rows}, .draws = {{}, targets}},
            {.operands = {logits, rows}, .attributes = {{"ignore", int64_t{2}}}, .draws = {{}, Draw{0, 8}}},
            {.operands = {logits, rows}, .attributes = {{"grad", true}}, .draws = {{}, targets}},
            {.operands = {logits, rows, f32({})},
             .attributes = {{"grad", true}},
             .draws = {{}, targets},
             .derivative = false}};
}
Samples statistics_of_shards() {
    return {{.operands = {f32({4, 6, 9}), f32({4, 6}), i32({4, 6})}, .draws = {{}, tops, targets}}};
}
Samples losses_of_shards() {
    const TensorType rows = f32({4, 6});
    return {{.operands = {rows, rows, rows, i32({4, 6})}, .draws = {tops, totals, {}, targets}}};
}
Samples gradients_of_shards() {
    const TensorType logits = f32({4, 6, 9}), rows = f32({4, 6});
    return {{.operands = {logits, rows, rows, i32({4, 6})}, .draws = {{}, tops, totals, targets}},
            {.operands = {logits, rows, rows, i32({4, 6}), f32({})}, .draws = {{}, tops, totals, targets}}};
}

}  // namespace

std::vector<OpDef> cross_entropy_ops() {
    return {
        {.name = "cross_entropy",
         .operands = {"logits", "targets", "scale?"},
         .types = "f i s? -> s s f?",
         .attributes = {flag("grad"), integer("ignore", int64_t{-1})},
         .infer = infer_cross_entropy,
         .rule = cross_entropy_rule,
         .gradient = grad_cross_entropy,
         .decompose = decompose_cross_entropy,
         .flops = cross_entropy_flops,
         .in_place = {{2, 0}},
         .constant_outputs = {1},
         .indexed = OperandRef{false, 0},
         .loss = true,
         .looks_up = Lookup{1, {false, 0}, -1, true},
         .samples = losses},
        {.name = "cross_entropy_stats",
         .operands = {"logits", "top", "targets"},
         .types = "f F i -> s s",
         .attributes = {integer("ignore", int64_t{-1})},
         .infer = infer_stats,
         .rule = sharded_rule,
         .flops = loss_flops,
         .indexed = OperandRef{false, 0},
         .samples = statistics_of_shards},
        {.name = "cross_entropy_loss",
         .operands = {"top", "total", "picked", "targets"},
         .types = "F s s i -> s s",
         .attributes = {integer("ignore", int64_t{-1})},
         .infer = infer_loss,
         .rule = loss_rule,
         .flops = loss_flops,
         .samples = losses_of_shards},
        {.name = "cross_entropy_grad",
         .operands = {"logits", "top", "total", "targets", "scale?"},
         .types = "f F s i s? -> f",
         .attributes = {integer("ignore", int64_t{-1})},
         .infer = infer_dlogits,
         .rule = sharded_rule,
         .flops = loss_flops,
         .in_place = {{0, 0}},
         .indexed = OperandRef{false, 0},
         .samples = gradients_of_shards},
    };
}

}  // namespace orrery::ops
