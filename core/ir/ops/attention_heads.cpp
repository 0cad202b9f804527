// Attention with query heads split over more ranks than there are key/value heads: keys and values are repeated until
// each rank has whole heads of its own.
#include "ir/ops/attention_heads.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

/// k [B,S,G,D] with each head repeated `times` times, one after the other: [B,S,G times,D].
ValueId repeat(const OpLayouts& at, const AddPart& add, ValueId k, int64_t times) {
    const Shape s = shape_of(at.program, k);
    const Shape apart{s[0], s[1], s[2], 1, s[3]}, together{s[0], s[1], s[2] * times, s[3]};
    const ValueId one = add("reshape", {k}, {{"shape", apart}}, {}).front();
    const ValueId all = add("concat", std::vector<ValueId>(times, one), {{"dim", int64_t{3}}}, {}).front();
    return add("reshape", {all}, {{"shape", together}}, {}).front();
}

/// The gradient of repeat(): dk [B,S,G,D] is the sum of each head's `times` terms. The sum is local.
void add_repeats(const OpLayouts& at, const AddPart& add, ValueId terms, ValueId dk) {
    const Shape s = shape_of(at.program, dk);
    const int64_t times = shape_of(at.program, terms)[2] / s[2];
    const ValueId apart = add("reshape", {terms}, {{"shape", Shape{s[0], s[1], s[2], times, s[3]}}}, {}).front();
    add("sum", {apart}, {{"dims", Ints{3}}}, {dk});
}

}  // namespace

bool decompose_attention(const OpLayouts& at, const AddPart& add) {
    const auto& axes = at.inputs[0].splits()[2];
    const Op& op = at.op;
    const int64_t heads = shape_of(at.program, op.inputs[0])[2], groups = shape_of(at.program, op.inputs[1])[2];
    int64_t parts = 1, left = groups;
    bool uneven = false;
    std::vector<AxisId> crossing, shared;  // axes that split the keys' sequence; of these, those within one group
    for (const AxisId axis : axes) {
        const int64_t n = at.mesh.size(axis);
        parts *= n;
        uneven = uneven || (left > 1 && left % n != 0);
        if (n > 1 && at.inputs[1].at(axis) == Placement::split(1)) {
            crossing.push_back(axis);
            if (left == 1) shared.push_back(axis);
        }
        left = std::max<int64_t>(left / n, 1);
    }
    const std::optional<AxisId> ring = ring_axis(at);
    if (heads % parts != 0 || (!uneven && shared.empty())) {
        if (ring) add_attention(at, add, op.inputs, ring, op.outputs);
        return ring.has_value();
    }
    const auto all_to_all = [&](ValueId id, AxisId axis, int64_t from, int64_t to) {
        add("all_to_all", {id}, {{"axis", at.mesh.axis(axis).name}, {"from", from}, {"to", to}}, {});
    };
    std::vector<ValueId> inputs = op.inputs;
    for (const size_t i : {1, 2}) {
        if (uneven) inputs[i] = repeat(at, add, inputs[i], std::lcm(groups, parts) / groups);
        for (const AxisId axis : uneven ? crossing : shared)
            if (uneven)
                all_to_all(inputs[i], axis, 1, 2);
            else
                add("all_gather", {inputs[i]}, {{"axis", at.mesh.axis(axis).name}, {"dim", int64_t{1}}}, {});
    }
    if (!uneven || op.outputs.size() == 2) {
        add_attention(at, add, inputs, ring, op.outputs);
        return true;
    }
    const std::vector<ValueId> gradients = add_attention(at, add, inputs, ring, {});
    add("reshape", {gradients[0]}, {{"shape", shape_of(at.program, op.inputs[0])}}, {op.outputs[0]});
    for (const size_t i : {1, 2}) {
        for (auto axis = crossing.rbegin(); axis != crossing.rend(); ++axis) all_to_all(gradients[i], *axis, 2, 1);
        add_repeats(at, add, gradients[i], op.outputs[i]);
    }
    return true;
}

}  // namespace orrery::ops
