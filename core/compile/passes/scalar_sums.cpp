#include "compile/passes/scalar_sums.h"

#include <algorithm>

#include "ir/op.h"

namespace orrery {

namespace {

bool scalar_add(const Program& program, OpId id) {
    if (id == none) return false;
    const Op& op = program.op(id);
    return op.phase == Phase::update && program.value(op.outputs[0]).type == TensorType{DType::f32, {}} &&
           is_sum(op_def(op.kind));
}

std::vector<AxisId> partial_axes(const Versions& versions, ValueId value) {
    std::vector<AxisId> axes;
    for (const auto& partial : versions.held(value).preferred.partials()) axes.push_back(partial.axis);
    return axes;
}

}  // namespace

ScalarSums::ScalarSums(const Program& annotated)
    : annotated_(annotated), inner_(annotated.ops.size(), false), marked_(annotated.values.size(), false) {
    std::vector<int> readers(annotated.values.size(), 0);
    std::vector<bool> added(annotated.values.size(), false);
    const auto count = [&](ValueId id) { ++readers[id]; };
    for (size_t i = 0; i < annotated.ops.size(); ++i)
        for (ValueId input : annotated.ops[i].inputs) {
            count(input);
            if (scalar_add(annotated, i)) added[input] = true;
        }
    // A sum with a mark must exist as a value, so it is not merged into another one: it counts as read twice more.
    for (const Mark& mark : annotated.marks()) {
        count(mark.value), count(mark.value);
        marked_[mark.value] = true;
    }
    for (const Result& result : annotated.results) count(result.value);
    for (const Update& update : annotated.updates) count(update.value);
    for (OpId id = 0; id < std::ssize(annotated.ops); ++id) {
        if (!scalar_add(annotated, id)) continue;
        const size_t out = annotated.ops[id].outputs[0];
        if (added[out] && readers[out] == 1) continue;
        Sum sum;
        for (ValueId input : annotated.ops[id].inputs) collect(input, sum, readers);
        if (sum.inner.empty()) continue;
        std::sort(sum.inner.begin(), sum.inner.end());
        for (OpId inner : sum.inner) inner_[inner] = true;
        roots_.emplace(id, std::move(sum));
    }
}

/// Collects the terms of a sum. A norm adds many terms one after the other, so left operands are followed in a loop.
void ScalarSums::collect(ValueId value, Sum& sum, const std::vector<int>& readers) {
    std::vector<ValueId> right;
    while (scalar_add(annotated_, annotated_.value(value).op) && readers[value] == 1) {
        const OpId id = annotated_.value(value).op;
        sum.inner.push_back(id);
        right.push_back(annotated_.op(id).inputs[1]);
        value = annotated_.op(id).inputs[0];
    }
    sum.terms.push_back(value);
    for (auto term = right.rbegin(); term != right.rend(); ++term) collect(*term, sum, readers);
}

const std::vector<ValueId>* ScalarSums::terms(OpId op) const {
    const auto found = roots_.find(op);
    return found == roots_.end() ? nullptr : &found->second.terms;
}

int ScalarSums::stage_of(ValueId value) const {
    const OpId op = annotated_.value(value).op;
    return op == none ? none : annotated_.op(op).stage;
}

bool ScalarSums::mixed(OpId root, const Versions& versions) const {
    const auto& terms = roots_.at(root).terms;
    return std::any_of(terms.begin(), terms.end(),
                       [&](ValueId term) { return partial_axes(versions, term) != partial_axes(versions, terms[0]); });
}

void ScalarSums::combine(OpId root, Versions& versions, const Mesh& mesh, const AddTerms& add) const {
    struct Item {
        int stage;
        std::vector<AxisId> axes;
        ValueId value;
        OpId ready;
    };
    const Op& last = annotated_.op(root);
    std::vector<Item> items;
    for (ValueId term : roots_.at(root).terms)  // marks apply only after the last addition
        items.push_back(
            {stage_of(term), partial_axes(versions, term), term, marked_[term] ? root : annotated_.value(term).op});
    std::vector<OpId> additions = roots_.at(root).inner;  // each gives its output value to a new addition
    additions.push_back(root);
    size_t next = 0;
    const auto join = [&](Item& into, size_t other) {
        Op like = last;
        if (into.stage == items[other].stage) like.stage = into.stage;
        const OpId instead = additions[next++];
        into.ready = std::max({instead, into.ready, items[other].ready});
        const ValueId sum = annotated_.op(instead).outputs[0];
        add(like, into.ready, into.value, items[other].value, sum);
        into.value = sum;
    };
    while (items.size() > 1) {
        // Terms of one stage that are partial over the same axes are added in the program's order.
        std::map<std::pair<int, std::vector<AxisId>>, size_t> group_of;
        std::vector<std::vector<size_t>> groups;
        for (size_t i = 0; i < items.size(); ++i) {
            const auto [place, fresh] = group_of.try_emplace({items[i].stage, items[i].axes}, groups.size());
            if (fresh) groups.emplace_back();
            groups[place->second].push_back(i);
        }
        std::vector<Item> left;
        for (const std::vector<size_t>& group : groups) {
            for (size_t k = 1; k < group.size(); ++k) join(items[group[0]], group[k]);
            left.push_back(std::move(items[group[0]]));
        }
        items = std::move(left);
        if (items.size() == 1) break;
        const auto widest = std::max_element(
            items.begin(), items.end(), [](const Item& a, const Item& b) { return a.axes.size() < b.axes.size(); });
        if (widest->axes.empty()) {  // each stage has one complete sum
            for (size_t k = 1; k < items.size(); ++k) join(items[0], k);
            break;
        }
        // Prefers to reduce over an axis after which the term can be added to another one.
        size_t pick = widest->axes.size() - 1;
        for (size_t i = 0; i < widest->axes.size(); ++i) {
            std::vector<AxisId> left = widest->axes;
            left.erase(left.begin() + i);
            if (std::any_of(items.begin(), items.end(),
                            [&](const Item& item) { return item.stage == widest->stage && item.axes == left; }))
                pick = i;
        }
        Layout needed = versions.held(widest->value).preferred;
        needed.set(widest->axes[pick], Placement::replicated());
        versions.reshard_to(widest->value, needed,
                            {static_cast<int>(root), "for a sum of scalars over " + mesh.axis(widest->axes[pick]).name,
                             "terms are added where they lie alike", last.origin, false});
        widest->ready = root;
        widest->axes.erase(widest->axes.begin() + pick);
    }
}

}  // namespace orrery
