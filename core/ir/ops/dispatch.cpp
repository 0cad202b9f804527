// Tokens to the slots of experts and back: assign_slots, dispatch, combine, slot_dots.
//
// Legend: T tokens of a group (leading dims), k choices of a token, E experts, S slots of an expert in a group, D
// width.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "ir/ops/common.h"
#include "ir/ops/dispatch.h"

namespace orrery::ops {

namespace {

int64_t at_least_one(Infer& at, std::string_view key) {
    const int64_t n = at.attributes.integer(key);
    if (n < 1) at.fail(fmt::format("{} = {} must be at least 1", key, n));
    return n;
}

// Returns E and S. All slots together are numbered in i32.
std::pair<int64_t, int64_t> experts_and_slots(Infer& at) {
    const int64_t experts = at_least_one(at, "experts"), slots = at_least_one(at, "slots");
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (experts > most / slots)
        at.fail(fmt::format("{} experts of {} slots are too many: numbers of slots do not fit i32", experts, slots));
    return {experts, slots};
}

// Checks that the first `dims` dims of two inputs are the same.
void same_dims(Infer& at, size_t i, size_t j, int dims, std::string_view what) {
    for (int d = 0; d < dims; ++d) at.same_dim(i, d, j, d, what);
}

std::vector<Typed> infer_assign_slots(Infer& at) {
    at.expect_rank(0, 2);
    if (at.count() > 1) {
        at.expect_rank(1, at.rank(0), at.rank(0));
        same_dims(at, 0, 1, at.rank(0), "dims of ids and weights");
    }
    const int64_t experts = experts_and_slots(at).first;
    Typed load = at.typed(0);
    load.type.shape.pop_back();
    load.type.shape.back() = experts;
    load.dims.pop_back();
    load.dims.back().clear();
    return {at.typed(0), load};
}

// Checks weights (input 2) against slots (input `slots`).
void check_weights(Infer& at, size_t slots) {
    if (at.count() <= 2) return;
    at.expect_rank(2, at.rank(slots), at.rank(slots));
    same_dims(at, slots, 2, at.rank(slots), "dims of slots and weights");
}

std::vector<Typed> infer_dispatch(Infer& at) {
    at.expect_rank(0, 2);
    at.expect_rank(1, at.rank(0), at.rank(0));
    same_dims(at, 0, 1, at.rank(0) - 1, "dims of x and slots");
    check_weights(at, 1);
    const auto [experts, slots] = experts_and_slots(at);
    Typed y = at.typed(0);
    const auto tokens = static_cast<std::ptrdiff_t>(at.rank(0)) - 2;
    y.type.shape[tokens] = experts;
    y.type.shape.insert(y.type.shape.begin() + tokens + 1, slots);
    y.dims[tokens].clear();
    y.dims.insert(y.dims.begin() + tokens + 1, "");
    return {y};
}

std::vector<Typed> infer_combine(Infer& at) {
    at.expect_rank(0, 3);
    at.expect_rank(1, at.rank(0) - 1, at.rank(0) - 1);
    same_dims(at, 0, 1, at.rank(1) - 2, "leading dims of y and slots");
    check_weights(at, 1);
    Typed x = at.typed(1);
    x.type.dtype = at.dtype(0);
    x.type.shape.back() = at.shape(0).back();
    x.dims.back() = at.dims(0).back();
    return {x};
}

std::vector<Typed> infer_slot_dots(Infer& at) {
    at.expect_rank(0, 3);
    for (const size_t i : {1, 2}) at.expect_rank(i, at.rank(0) - 1, at.rank(0) - 1);
    same_dims(at, 0, 2, at.rank(2) - 2, "leading dims of y and slots");
    same_dims(at, 1, 2, at.rank(2) - 1, "dims of x and slots");
    at.same_dim(0, at.rank(0) - 1, 1, at.rank(1) - 1, "last dims of y and x");
    Typed dots = at.typed(2);
    dots.type.dtype = DType::f32;
    return {dots};
}

// Dims of the three shapes: choices [.., T, k], rows [.., T, D], experts [.., E, S, D].
struct SlotRule {
    RuleMaker make;
    FactorRule::Dims choices, rows, experts;

    // `slots`: a value with the shape of choices; `held`: one with that of experts.
    SlotRule(const Shape& slots, const Shape& held, Factor::Kind width) {
        const size_t leading = slots.size() - 2;
        for (size_t d = 0; d < leading; ++d) choices.push_back(make.parallel(slots[d]));
        rows = experts = choices;
        choices.push_back(make.whole(slots[leading]));
        rows.push_back(choices.back());
        choices.push_back(make.whole(slots[leading + 1]));
        experts.push_back(make.dim(Factor::Kind::index, held[leading]));
        experts.push_back(make.whole(held[leading + 1]));
        experts.push_back(make.dim(width, held[leading + 2]));
        rows.push_back(experts.back());
    }
};

FactorRule assign_slots_rule(const Program& program, const Op& op) {
    const Shape& ids = shape_of(program, op.inputs[0]);
    RuleMaker make;
    FactorRule::Dims leading;
    for (size_t d = 0; d + 2 < ids.size(); ++d) leading.push_back(make.parallel(ids[d]));
    FactorRule::Dims choices = leading, load = leading;
    choices.push_back(make.whole(ids[ids.size() - 2]));
    choices.push_back(make.whole(ids.back()));
    load.push_back(make.whole(shape_of(program, op.outputs[1]).back()));
    make.rule.inputs.assign(op.inputs.size(), choices);
    make.rule.outputs = {choices, load};
    return make.rule;
}

FactorRule dispatch_rule(const Program& program, const Op& op) {
    SlotRule at(shape_of(program, op.inputs[1]), shape_of(program, op.outputs[0]), Factor::Kind::parallel);
    at.make.rule.inputs.assign(op.inputs.size(), at.choices);
    at.make.rule.inputs[0] = at.rows;
    at.make.rule.outputs = {at.experts};
    at.make.rule.linear_in = {0};
    return at.make.rule;
}

// A rank with some of the experts gives the sum over their slots alone, and the sum over ranks is the result.
FactorRule combine_rule(const Program& program, const Op& op) {
    SlotRule at(shape_of(program, op.inputs[1]), shape_of(program, op.inputs[0]), Factor::Kind::parallel);
    at.make.rule.inputs.assign(op.inputs.size(), at.choices);
    at.make.rule.inputs[0] = at.experts;
    at.make.rule.outputs = {at.rows};
    at.make.rule.linear_in = {0};
    return at.make.rule;
}

FactorRule slot_dots_rule(const Program& program, const Op& op) {
    SlotRule at(shape_of(program, op.inputs[2]), shape_of(program, op.inputs[0]), Factor::Kind::contracted);
    at.make.rule.inputs = {at.experts, at.rows, at.choices};
    at.make.rule.outputs = {at.choices};
    at.make.rule.linear_in = {0};
    return at.make.rule;
}

std::vector<ValueId> with_weights(Backward& g, ValueId first) {
    std::vector<ValueId> inputs{first, g.in(1)};
    if (g.count() > 2) inputs.push_back(g.in(2));
    return inputs;
}

void give_weights(Backward& g, ValueId y, ValueId x) {
    if (g.count() <= 2 || !g.wants(2)) return;
    g.give(2, g.cast(g.one("slot_dots", {y, x, g.in(1)}), g.type(g.in(2)).dtype));
}

void grad_dispatch(Backward& g) {
    const ValueId dy = g.dy();
    if (g.wants(0)) g.give(0, g.one("combine", with_weights(g, dy)));
    give_weights(g, dy, g.in(0));
}

void grad_combine(Backward& g) {
    const ValueId dx = g.dy();
    if (g.wants(0)) {
        const Shape& y = g.shape(g.in(0));
        g.give(0, g.one("dispatch", with_weights(g, dx), {{"experts", y[y.size() - 3]}, {"slots", y[y.size() - 2]}}));
    }
    give_weights(g, g.in(0), dx);
}

int64_t choice_flops(const Program& program, const Op& op) { return program.value(op.inputs[0]).type.count(); }

// A multiplication and an addition for each choice and column.
int64_t slot_flops(const Program& program, const Op& op) {
    const Shape& y = shape_of(program, op.kind == "dispatch" ? op.outputs[0] : op.inputs[0]);
    const ValueId slots = op.inputs[op.kind == "slot_dots" ? 2 : 1];
    return 2 * program.value(slots).type.count() * y.back();
}

/// Numbers of slots count dims E and S of y [.., E, S, D].
Lookup slots_of(int slots, OperandRef y) { return {.ids = slots, .rows = y, .dim = -3, .skips = true, .dims = 2}; }

// With slots by weight: the choices of an expert in a group that have a slot in only one of both results. Each choice
// that lost its slot is paired with each that gained one. If their numbers differ, no order explains it: returns none.
std::vector<Rivals> other_holders(const Attributes& attributes, std::span<const Shape> operands, const Tensor& want,
                                  const Tensor& have) {
    if (operands.size() < 2) return {};
    const int64_t slots = attributes.integer("slots");
    const int64_t group = want.shape.back() * want.shape[want.shape.size() - 2];
    const auto *before = static_cast<const int32_t*>(want.data), *now = static_cast<const int32_t*>(have.data);
    std::map<int64_t, std::array<std::vector<int64_t>, 2>> changed;  // by expert of a group: choices lost and gained
    for (int64_t c = 0; c < want.count(); ++c)
        if ((before[c] < 0) != (now[c] < 0))
            changed[c / group * attributes.integer("experts") + std::max(before[c], now[c]) / slots][before[c] < 0]
                .push_back(c);
    std::vector<Rivals> found;
    for (const auto& [expert, choices] : changed) {
        if (choices[0].size() != choices[1].size()) return {};
        for (const int64_t lost : choices[0])
            for (const int64_t gained : choices[1]) found.push_back({lost, lost, gained});
    }
    return found;
}

// Samples: 2 groups of 9 tokens with 3 choices among 4 experts with 6 slots. Slots of a gradient's sample may repeat,
// and some are out of range at both ends.
const Attributes experts_4{{"experts", int64_t{4}}, {"slots", int64_t{6}}};
constexpr Draw any_slot{-1, 24}, any_expert{-1, 4};

Samples assignments() {
    return {{.operands = {i32({2, 9, 3})}, .attributes = experts_4, .draws = {any_expert}},
            {.operands = {i32({2, 9, 3}), f32({2, 9, 3})}, .attributes = experts_4, .draws = {any_expert}},
            {.operands = {i32({33, 2}), f32({33, 2})}, .attributes = experts_4, .draws = {any_expert}}};
}
Samples dispatches() {
    return {{.operands = {f32({2, 9, 6}), i32({2, 9, 3})}, .attributes = experts_4, .draws = {{}, any_slot}},
            {.operands = {f32({2, 9, 6}), i32({2, 9, 3}), f32({2, 9, 3})},
             .attributes = experts_4,
             .draws = {{}, any_slot}},
            {.operands = {f32({9, 33}), i32({9, 2})}, .attributes = experts_4, .draws = {{}, any_slot}}};
}
Samples combinations() {
    return {{.operands = {f32({2, 4, 6, 9}), i32({2, 15, 3})}, .draws = {{}, any_slot}},
            {.operands = {f32({2, 4, 6, 9}), i32({2, 15, 3}), f32({2, 15, 3})}, .draws = {{}, any_slot}},
            {.operands = {f32({4, 6, 33}), i32({9, 2})}, .draws = {{}, any_slot}}};
}
Samples dots() {
    return {{.operands = {f32({2, 4, 6, 9}), f32({2, 15, 9}), i32({2, 15, 3})}, .draws = {{}, {}, any_slot}},
            {.operands = {f32({4, 6, 33}), f32({9, 33}), i32({9, 2})}, .draws = {{}, {}, any_slot}}};
}

}  // namespace

const Op* assigned(const Program& program, ValueId load) {
    while (program.value(load).op != none) {
        const Op& op = program.op(program.value(load).op);
        if (op.kind == "assign_slots") return &op;
        if (op.inputs.size() != 1) break;
        load = op.inputs[0];
    }
    return nullptr;
}

std::vector<OpDef> dispatch_ops() {
    return {
        {.name = "assign_slots",
         .operands = {"ids", "weights?"},
         .types = "i f? -> i i",
         .attributes = {required(integer("experts")), required(integer("slots"))},
         .infer = infer_assign_slots,
         .rule = assign_slots_rule,
         .flops = choice_flops,
         .looks_up = Lookup{0, {true, 1}, -1, true},
         .choice = FloatChoice{0, {1, 1}, other_holders},
         .samples = assignments},
        {.name = "dispatch",
         .operands = {"x", "slots", "weights?"},
         .types = "f i F? -> f",
         .attributes = {required(integer("experts")), required(integer("slots"))},
         .infer = infer_dispatch,
         .rule = dispatch_rule,
         .gradient = grad_dispatch,
         .flops = slot_flops,
         .indexed = OperandRef{true, 0},
         .looks_up = slots_of(1, {true, 0}),
         .samples = dispatches},
        {.name = "combine",
         .operands = {"y", "slots", "weights?"},
         .types = "f i F? -> f",
         .infer = infer_combine,
         .rule = combine_rule,
         .gradient = grad_combine,
         .flops = slot_flops,
         .indexed = OperandRef{false, 0},
         .looks_up = slots_of(1, {false, 0}),
         .samples = combinations},
        {.name = "slot_dots",
         .operands = {"y", "x", "slots"},
         .types = "F F i -> s",
         .infer = infer_slot_dots,
         .rule = slot_dots_rule,
         .flops = slot_flops,
         .indexed = OperandRef{false, 0},
         .looks_up = slots_of(2, {false, 0}),
         .samples = dots},
    };
}

}  // namespace orrery::ops
