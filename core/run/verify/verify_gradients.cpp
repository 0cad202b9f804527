#include "run/verify/verify_gradients.h"

#include <algorithm>

#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {
namespace {

Moves moves(const Op& op) { return op_def(op.kind).moves; }

/// Whether the op multiplies all elements of its operand `input` by one number, or only moves them.
bool keeps_multiple(const Program& program, const Op& op, size_t input) {
    const std::vector<int>& multiplies = op_def(op.kind).multiplies;
    if (std::find(multiplies.begin(), multiplies.end(), input) == multiplies.end()) return false;
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (i != input && program.value(op.inputs[i]).type.count() != 1) return false;
    return true;
}

}  // namespace

Gradients::Gradients(const Plan& plan, size_t known) : plan_(plan), known_(known) {
    const Program& program = plan.program;
    find_live();
    carry();
    multiple_of_.assign(program.values.size(), none);
    std::map<ValueId, ValueId> whole;
    for (ValueId value = 0; value < std::ssize(program.values); ++value) {
        if (!live_[value] || partial_over_ranks(value)) continue;
        const ValueId term = term_of(value);
        if (carried_.count(term) != 0 && program.values[value].type == program.value(term).type) whole[term] = value;
    }
    for (const auto& [term, value] : whole)
        for (const auto& [gradient, multiple] : carried_.at(term)) {
            standing_[gradient].push_back({value, multiple});
            if (multiple) multiple_of_[value] = gradient;
        }
}

const std::vector<Gradients::Standing>& Gradients::of(ValueId gradient) const {
    static const std::vector<Standing> nowhere;
    const auto found = standing_.find(gradient);
    return found == standing_.end() ? nowhere : found->second;
}

void Gradients::find_live() {
    const Program& program = plan_.program;
    live_.assign(program.values.size(), 0);
    for (const Update& update : program.updates) live_[update.value] = 1;
    for (const Result& result : program.results) live_[result.value] = 1;
    for (size_t i = program.ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        if (std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return live_[id]; }))
            for (ValueId input : op.inputs) live_[input] = 1;
    }
}

bool Gradients::partial_over_ranks(ValueId value) const {
    const auto& partials = plan_.program.value(value).layout.partials();
    return std::any_of(partials.begin(), partials.end(),
                       [&](const auto& partial) { return !plan_.mesh.axis(partial.axis).sequential; });
}

/// Whether the op was added to pack or cast for a message (compile/passes/bucket.h, encode_edges.h).
bool Gradients::added_move(const Op& op) const {
    const bool moved = moves(op) != Moves::no || op_def(op.kind).casts;
    return moved && static_cast<size_t>(op.outputs[0]) >= known_;
}

/// Follows the terms of gradients through ops. Before a term is summed, only ops that are linear in it may read it.
void Gradients::carry() {
    const Program& program = plan_.program;
    for (const auto& [param, gradient] : program.grads()) carried_[gradient] = {{gradient, true}};
    for (const Op& op : program.ops) {
        if (added_move(op) || (op_def(op.kind).collective && op.inputs.size() == 1)) continue;
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const auto found = carried_.find(op.inputs[i]);
            if (found == carried_.end() || !partial_over_ranks(op.inputs[i])) continue;
            const Carried from = found->second;
            for (ValueId output : op.outputs)
                for (const auto& [gradient, multiple] : from) {
                    // the output is itself a param's gradient
                    if (carried_.count(output) != 0 && carried_[output].count(output) != 0) continue;
                    const bool alone = carried_[output].empty();
                    carried_[output][gradient] = multiple && alone && keeps_multiple(program, op, i);
                    if (alone) continue;
                    for (auto& [other, is_multiple] : carried_[output]) is_multiple = false;
                }
        }
    }
}

ValueId Gradients::term_of(ValueId value) const {
    return before_messages(
        plan_.program, value, [&](ValueId id) { return carried_.count(id) != 0; },
        [&](const Op& op) { return added_move(op); });
}

ValueId before_messages(const Program& program, ValueId value, const std::function<bool(ValueId)>& found,
                        const std::function<bool(const Op&)>& packs) {
    int64_t start = 0;  // first row of this param within joined rows
    for (OpId maker; !found(value) && (maker = program.value(value).op) != none;) {
        const Op& op = program.op(maker);
        if (const CodedMessage* coded = op.attributes.has("codec") ? coded_message(program, value) : nullptr) {
            value = coded->plain;
            continue;
        }
        if (!packs(op) && !(op_def(op.kind).collective && op.inputs.size() == 1)) break;
        if (moves(op) == Moves::cuts) start = op.attributes.integer("start");
        size_t input = 0;
        if (moves(op) == Moves::joins)
            for (; input + 1 < op.inputs.size(); ++input) {
                const int64_t width = program.value(op.inputs[input]).type.shape.back();
                if (start < width) break;
                start -= width;
            }
        value = op.inputs[input];
    }
    return value;
}

}  // namespace orrery
