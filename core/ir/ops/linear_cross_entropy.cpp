// Softmax cross entropy of the logits x head (+ bias) in tiles of rows, so that the logits of all rows never exist at
// once: x [...,C], head [C,V] or [V,C], targets i32 [...] -> loss_sum, count (, dx, dhead, dbias). The
// gradients are those of loss_sum. The forward op computes them while it has the logits of a tile.
//
// When V is split, a rank has only some logits of each row, and needs statistics of the others before it has a
// gradient. The op is then decomposed, and the logits are computed twice:
//   linear_cross_entropy_stats   by block of V: log of the sum of exponentials; logits of targets   P(sum)
//   max, cross_entropy_stats     the same over all blocks                                   P(max), P(sum)
//   cross_entropy_loss           loss_sum, count
//   linear_cross_entropy_grad    dx P(sum), dhead, dbias
#include <fmt/format.h>

#include "ir/describe.h"
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

/// The dim of the head that is the vocabulary.
int vocab_dim(const Attributes& attributes) { return static_cast<int>(attributes.integer("dim")); }

/// Type of dx for x of a type. f16 has too few exponents for a gradient that has no loss scale yet.
DType slope_type(DType x) { return x == DType::f16 ? DType::f32 : x; }

/// Checks operands x, head and targets, and the bias at `bias` if there is one; returns the type of the targets.
Typed check_rows(Infer& at, size_t bias) {
    at.expect_rank(0, at.rank(2) + 1, at.rank(2) + 1);
    at.expect_rank(1, 2, 2);
    Typed rows = at.typed(2);
    for (int d = 0; d < at.rank(2); ++d) rows.dims[d] = at.same_dim(0, d, 2, d, "row dims");
    const int vocab = at.dim_attribute("dim", 2);
    at.same_dim(0, at.rank(0) - 1, 1, 1 - vocab, "inner dims");
    if (at.count() > bias) {
        at.expect_rank(bias, 1, 1);
        at.same_dim(1, vocab, bias, 0, "bias and vocabulary");
    }
    const int64_t tile = at.attributes.integer("tile");
    if (tile < 0) at.fail(fmt::format("tile = {}", tile), "give a number of rows, or 0 for tiles of at most 64 MiB");
    if (tile == 0) at.attributes.erase("tile");
    return rows;
}

/// dx, dhead and, where the attribute bias_grad is set, dbias. `bias`: index of that operand.
void add_slopes(Infer& at, size_t bias, std::vector<Typed>& made) {
    Typed dx = at.typed(0), dhead = at.typed(1);
    dx.type.dtype = slope_type(dx.type.dtype);
    dhead.type.dtype = DType::f32;
    made.push_back(dx);
    made.push_back(dhead);
    if (!at.attributes.flag("bias_grad")) return;
    if (at.count() <= bias) at.fail("bias_grad without a bias");
    made.push_back(make_typed(DType::f32, at.shape(bias), at.dims(bias)));
}

std::vector<Typed> infer_whole(Infer& at) {
    check_rows(at, 3);
    std::vector<Typed> made(2, make_typed(DType::f32, {}, {}));
    if (at.attributes.flag("grad"))
        add_slopes(at, 3, made);
    else if (at.attributes.flag("bias_grad"))
        at.fail("bias_grad without grad");
    return made;
}

std::vector<Typed> infer_block_stats(Infer& at) {
    Typed rows = check_rows(at, 3);
    const int64_t blocks = at.attributes.integer("blocks"), vocab = at.shape(1)[vocab_dim(at.attributes)];
    if (blocks < 1 || vocab % blocks != 0)
        at.fail(fmt::format("blocks = {}, which does not divide a vocabulary of {}", blocks, vocab));
    rows.type.dtype = DType::f32;
    Typed lse = rows;
    lse.type.shape.push_back(blocks);
    lse.dims.push_back("");
    return {lse, rows};
}

std::vector<Typed> infer_grad(Infer& at) {
    check_rows(at, 5);
    for (const size_t statistic : {3, 4}) {
        at.expect_rank(statistic, at.rank(2), at.rank(2));
        for (int d = 0; d < at.rank(2); ++d) at.same_dim(statistic, d, 2, d, "row dims");
    }
    std::vector<Typed> made;
    add_slopes(at, 5, made);
    return made;
}

/// The factors of the three ops' operands.
struct Dims {
    FactorRule::Dims rows, x, head, bias;
};

Dims dims_of(RuleMaker& make, const Program& program, const Op& op, Factor::Kind rows, const std::vector<int>& vocab) {
    Dims dims;
    for (int64_t size : shape_of(program, op.inputs[2])) dims.rows.push_back(make.dim(rows, size));
    dims.x = dims.rows;
    const auto inner = make.whole(shape_of(program, op.inputs[0]).back());
    dims.x.push_back(inner);
    dims.head = vocab_dim(op.attributes) == 0 ? FactorRule::Dims{vocab, inner} : FactorRule::Dims{inner, vocab};
    dims.bias = {vocab};
    return dims;
}

int64_t vocab_of(const Program& program, const Op& op) {
    return shape_of(program, op.inputs[1])[vocab_dim(op.attributes)];
}

void add_slopes(FactorRule& rule, const Dims& dims, size_t outputs) {
    for (const FactorRule::Dims& slope : {dims.x, dims.head, dims.bias})
        if (rule.outputs.size() < outputs) rule.outputs.push_back(slope);
}

FactorRule whole_rule(const Program& program, const Op& op) {
    RuleMaker make;
    const auto vocab = make.whole(vocab_of(program, op));
    const Dims dims = dims_of(make, program, op, Factor::Kind::contracted, vocab);
    make.rule.inputs = {dims.x, dims.head, dims.rows};
    if (op.inputs.size() > 3) make.rule.inputs.push_back(dims.bias);
    make.rule.outputs = {{}, {}};
    add_slopes(make.rule, dims, op.outputs.size());
    return make.rule;
}

FactorRule stats_rule(const Program& program, const Op& op) {
    RuleMaker make;
    const int64_t blocks = op.attributes.integer("blocks");
    const auto block = make.dim(Factor::Kind::index, blocks);
    auto vocab = block;
    for (int factor : make.whole(vocab_of(program, op) / blocks)) vocab.push_back(factor);
    const Dims dims = dims_of(make, program, op, Factor::Kind::parallel, vocab);
    make.rule.inputs = {dims.x, dims.head, dims.rows};
    if (op.inputs.size() > 3) make.rule.inputs.push_back(dims.bias);
    FactorRule::Dims lse = dims.rows;
    lse.push_back(block);
    make.rule.outputs = {lse, dims.rows};
    return make.rule;
}

FactorRule grad_rule(const Program& program, const Op& op) {
    RuleMaker make;
    const auto vocab = make.dim(Factor::Kind::index, vocab_of(program, op));
    const Dims dims = dims_of(make, program, op, Factor::Kind::contracted, vocab);
    make.rule.inputs = {dims.x, dims.head, dims.rows, dims.rows, dims.rows};
    if (op.inputs.size() > 5) make.rule.inputs.push_back(dims.bias);
    add_slopes(make.rule, dims, op.outputs.size());
    return make.rule;
}

/// Makes the forward op compute the gradients that are wanted and that it does not compute yet. Returns its outputs
/// from the third on: dx, dhead (, dbias).
std::vector<ValueId> slopes_of(Backward& g) {
    Program& program = g.program();
    const OpId id = program.value(g.out(0)).op;
    const size_t made = g.count() > 3 && g.wants(3) ? 3 : 2;
    constexpr size_t inputs[] = {0, 1, 3};
    for (size_t i = g.op().outputs.size() - 2; i < made; ++i) {
        Value value;
        value.type = g.type(g.in(inputs[i]));
        value.type.dtype = i == 0 ? slope_type(value.type.dtype) : DType::f32;
        value.dims = program.value(g.in(inputs[i])).dims;
        value.op = id;
        value.output = static_cast<int>(2 + i);
        value.origin = g.op().origin;
        program.ops[id].outputs.push_back(g.append(std::move(value)));
    }
    Op& op = program.ops[id];
    op.attributes.set("grad", true);
    if (op.outputs.size() > 4) op.attributes.set("bias_grad", true);
    return {op.outputs.begin() + 2, op.outputs.end()};
}

/// The slopes are those of loss_sum, and are multiplied by its gradient in f32, so that a loss scale or a divisor is
/// rounded once, with the product.
void grad_whole(Backward& g) {
    if (g.op().outputs.size() > 2) {
        g.expect_no_dy(2, "dx");
        g.expect_no_dy(3, "dhead");
    }
    if (g.op().outputs.size() > 4) g.expect_no_dy(4, "dbias");
    if (!g.has_dy(0)) return;
    const std::vector<ValueId> slopes = slopes_of(g);
    constexpr size_t inputs[] = {0, 1, 3};
    for (size_t i = 0; i < slopes.size(); ++i)
        if (g.wants(inputs[i])) g.give(inputs[i], times_dy(g, slopes[i], DType::f32));
}

bool decompose_whole(const OpLayouts& at, const AddPart& add) {
    const Op& op = at.op;
    int64_t blocks = 1;
    for (const AxisId axis : at.inputs[1].splits()[vocab_dim(op.attributes)]) blocks *= at.mesh.size(axis);
    if (blocks == 1 || vocab_of(at.program, op) % blocks != 0) return false;
    Attributes shared;
    for (const char* name : {"dim", "ignore", "tile"})
        if (const Attribute* given = op.attributes.find(name)) shared.set(name, *given);
    Attributes by_block = shared;
    by_block.set("blocks", blocks);
    const ValueId x = op.inputs[0], head = op.inputs[1], targets = op.inputs[2];
    const Attributes ignore{{"ignore", *op.attributes.find("ignore")}};  // inference always stores a value for it
    const auto stats = add("linear_cross_entropy_stats", op.inputs, by_block, {});
    const int64_t last = rank_of(at.program, targets);
    const ValueId top = add("max", {stats[0]}, {{"dims", Ints{last}}}, {})[0];
    // The blocks are reduced as if they were columns. Only the total is used: the targets, ids of the vocabulary, say
    // which rows to ignore, and what the op picks for them means nothing.
    const ValueId total = add("cross_entropy_stats", {stats[0], top, targets}, ignore, {})[0];
    add("cross_entropy_loss", {top, total, stats[1], targets}, ignore, {op.outputs[0], op.outputs[1]});
    if (op.outputs.size() == 2) return true;
    std::vector<ValueId> inputs{x, head, targets, top, total};
    if (op.inputs.size() > 3) inputs.push_back(op.inputs[3]);
    if (op.outputs.size() > 4) shared.set("bias_grad", true);
    add("linear_cross_entropy_grad", std::move(inputs), shared, {op.outputs.begin() + 2, op.outputs.end()});
    return true;
}

/// The op that computes the logits.
Op logits_of(const Op& loss) {
    Op op;
    op.kind = "matmul";
    op.inputs = {loss.inputs[0], loss.inputs[1]};
    if (loss.inputs.size() > 3) op.inputs.push_back(loss.inputs[3]);
    op.attributes.set("trans_b", vocab_dim(loss.attributes) == 0);
    return op;
}

/// FLOPs of `gemms` GEMMs of the logits' size.
int64_t flops_of(const Program& program, const Op& op, int64_t gemms) {
    return 2 * gemms * program.value(op.inputs[0]).type.count() * vocab_of(program, op);
}
int64_t whole_flops(const Program& program, const Op& op) {
    return flops_of(program, op, op.outputs.size() > 2 ? 3 : 1);
}
int64_t stats_flops(const Program& program, const Op& op) { return flops_of(program, op, 1); }
int64_t block_grad_flops(const Program& program, const Op& op) { return flops_of(program, op, 3); }

constexpr Draw drawn_targets{-1, 8};  // test values; -1: the row is ignored
constexpr Draw drawn_tops{6, 6.5};    // test values for row maxima, above the range of the logits
constexpr Draw drawn_totals{2, 6};    // test values for sums of exponentials

Samples tiled_losses() {
    const TensorType x = f32({4, 6, 3}), by_column = f32({3, 9}), by_row = f32({9, 3}), bias = f32({9});
    const TensorType rows = i32({4, 6});
    const Attributes transposed{{"dim", int64_t{0}}};
    return {{.operands = {x, by_column, rows}, .draws = {{}, {}, drawn_targets}},
            {.operands = {x, by_row, rows},
             .attributes = {{"tile", int64_t{5}}, {"dim", int64_t{0}}},
             .draws = {{}, {}, drawn_targets}},
            {.operands = {x, by_column, rows, bias},
             .attributes = {{"ignore", int64_t{2}}, {"tile", int64_t{7}}},
             .draws = {{}, {}, Draw{0, 8}}},
            {.operands = {x, by_row, rows, bias}, .attributes = transposed, .draws = {{}, {}, drawn_targets}},
            {.operands = {x, by_row, rows},
             .attributes = {{"grad", true}, {"tile", int64_t{4}}, {"dim", int64_t{0}}},
             .draws = {{}, {}, drawn_targets}},
            {.operands = {x, by_column, rows, bias},
             .attributes = {{"bias_grad", true}, {"grad", true}},
             .draws = {{}, {}, drawn_targets}}};
}
Samples statistics_of_blocks() {
    const TensorType x = f32({4, 6, 3}), rows = i32({4, 6});
    return {{.operands = {x, f32({12, 3}), rows},
             .attributes = {{"blocks", int64_t{6}}, {"dim", int64_t{0}}},
             .draws = {{}, {}, Draw{-1, 11}}},
            {.operands = {x, f32({3, 12}), rows, f32({12})},
             .attributes = {{"blocks", int64_t{2}}, {"tile", int64_t{5}}},
             .draws = {{}, {}, Draw{-1, 11}}}};
}
Samples gradients_of_blocks() {
    const TensorType x = f32({4, 6, 3}), rows = i32({4, 6}), statistic = f32({4, 6});
    return {{.operands = {x, f32({9, 3}), rows, statistic, statistic},
             .attributes = {{"dim", int64_t{0}}},
             .draws = {{}, {}, drawn_targets, drawn_tops, drawn_totals}},
            {.operands = {x, f32({3, 9}), rows, statistic, statistic, f32({9})},
             .attributes = {{"bias_grad", true}, {"tile", int64_t{5}}},
             .draws = {{}, {}, drawn_targets, drawn_tops, drawn_totals}}};
}

}  // namespace

std::vector<OpDef> linear_cross_entropy_ops() {
    const auto shared = [](std::vector<AttributeDef> own) {
        for (AttributeDef def : {integer("dim", int64_t{1}), integer("ignore", int64_t{-1}), integer("tile")})
            own.push_back(std::move(def));
        return own;
    };
    const Lookup lookup{.ids = 2, .rows = {false, 1}, .skips = true, .dim_attribute = "dim"};
    return {
        {.name = "linear_cross_entropy",
         .operands = {"x", "head", "targets", "bias?"},
         .types = "f f i f? -> s s F? s? s?",
         .attributes = shared({flag("grad"), flag("bias_grad")}),
         .infer = infer_whole,
         .rule = whole_rule,
         .gradient = grad_whole,
         .decompose = decompose_whole,
         .flops = whole_flops,
         .in_place = {{2, 0}},
         .constant_outputs = {1},
         .accumulates = {0, 1, 3, 4},
         .product = true,
         .work = Work::tiled_loss,
         .loss = true,
         .looks_up = lookup,
         .samples = tiled_losses,
         .logits = logits_of},
        {.name = "linear_cross_entropy_stats",
         .operands = {"x", "head", "targets", "bias?"},
         .types = "f f i f? -> s s",
         .attributes = shared({required(integer("blocks"))}),
         .infer = infer_block_stats,
         .rule = stats_rule,
         .flops = stats_flops,
         .indexed = OperandRef{false, 1},
         .work = Work::tiled_loss,
         .samples = statistics_of_blocks},
        {.name = "linear_cross_entropy_grad",
         .operands = {"x", "head", "targets", "top", "total", "bias?"},
         .types = "f f i s s f? -> F s s?",
         .attributes = shared({flag("bias_grad")}),
         .infer = infer_grad,
         .rule = grad_rule,
         .flops = block_grad_flops,
         .in_place = {{0, 0}},
         .accumulates = {1, 2},
         .indexed = OperandRef{false, 1},
         .work = Work::tiled_loss,
         .samples = gradients_of_blocks},
    };
}

}  // namespace orrery::ops
