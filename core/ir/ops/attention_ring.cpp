// Ring attention: keys and values travel around the ranks of an axis, block by block.
#include <fmt/format.h>

#include <algorithm>

#include "ir/describe.h"
#include "ir/ops/attention_heads.h"
#include "ir/ops/common.h"

namespace orrery::ops {

namespace {

constexpr int seq_dim = 1;  // of q, k, v and the index

class Ring {
public:
    Ring(const OpLayouts& at, const AddPart& part, std::vector<ValueId> inputs, AxisId axis)
        : at_(at),
          part_(part),
          inputs_(std::move(inputs)),
          steps_(at.mesh.size(axis)),
          block_(shape_of(at.program, inputs_[1])[seq_dim] / steps_) {
        const size_t index = at.op.outputs.size() == 2 ? 3 : 6;
        indexed_ = inputs_.size() >= index + 4;
        travelling_ = {1, 2};
        if (indexed_) travelling_.insert(travelling_.end(), {index + 2, index + 3});
    }

    /// o [B,T,H,V] in its type, and lse [B,H,T].
    std::vector<ValueId> forward(const std::vector<ValueId>& made) {
        const DType type = at_.program.value(at_.op.outputs[0]).type.dtype;
        const auto is_result = [&](int64_t step) { return step + 1 == steps_ && type == DType::f32; };
        std::vector<ValueId> sum = attend(0);
        for (int64_t step = 1; step < steps_; ++step) {
            const std::vector<ValueId> part = attend(step);
            const std::vector<ValueId> both{sum[0], sum[1], part[0], part[1]};
            sum = add("merge", both, {}, is_result(step) ? made : std::vector<ValueId>());
        }
        if (type == DType::f32) return sum;
        const Attributes same{{"shape", shape_of(at_.program, sum[1])}};
        return {cast(sum[0], type, one_of(made, 0)), add("reshape", {sum[1]}, same, one_of(made, 1)).front()};
    }

    /// Returns dq, dk and dv. A rank adds its own terms of dk and dv to the sums that the other ranks send back to it.
    /// dq is summed in f32; the sums of dk and dv travel, and are rounded to their type in each step.
    std::vector<ValueId> backward(const std::vector<ValueId>& made) {
        const DType type = at_.program.value(at_.op.outputs[0]).type.dtype;
        const auto wide = [&](ValueId id) { return type == DType::f32 ? id : cast(id, DType::f32, {}); };
        const std::vector<ValueId> own = attend(0);
        std::vector<ValueId> sum{wide(own[0]), own[1], own[2]};  // dq, and the sums of dk and dv that travel
        for (int64_t step = 1; step < steps_; ++step) {
            const std::vector<ValueId> part = attend(step);
            for (const size_t i : {1, 2}) sum[i] = roll(step == 1 ? part[i] : plus(sum[i], part[i]));
            const bool is_result = step + 1 == steps_ && type == DType::f32;
            sum[0] = plus(sum[0], wide(part[0]), is_result ? one_of(made, 0) : std::vector<ValueId>());
        }
        if (type != DType::f32) sum[0] = cast(sum[0], type, one_of(made, 0));
        for (const size_t i : {1, 2}) sum[i] = plus(sum[i], own[i], one_of(made, i));
        return sum;
    }

private:
    std::vector<ValueId> add(std::string_view kind, const std::vector<ValueId>& inputs, const Attributes& attributes,
                             const std::vector<ValueId>& made) {
        return part_(kind, inputs, attributes, made);
    }

    static std::vector<ValueId> one_of(const std::vector<ValueId>& made, size_t i) {
        return made.empty() ? made : std::vector<ValueId>{made[i]};
    }

    ValueId cast(ValueId id, DType type, const std::vector<ValueId>& made) {
        return add("cast", {id}, {{"dtype", std::string(name_of(type))}}, made).front();
    }

    ValueId plus(ValueId a, ValueId b, const std::vector<ValueId>& made = {}) {
        return add(op_combining(ReduceOp::sum), {a, b}, {}, made).front();
    }

    ValueId roll(ValueId id) { return add("roll", {id}, {{"dim", int64_t{seq_dim}}, {"by", block_}}, {}).front(); }

    /// Adds the op over the keys of a step, after the rolls that fetch those of the next one.
    std::vector<ValueId> attend(int64_t step) {
        const std::vector<ValueId> now = inputs_;
        for (const size_t i : travelling_)
            if (step + 1 < steps_) inputs_[i] = roll(inputs_[i]);
        Attributes attributes = at_.op.attributes;
        attributes.set("blocks", steps_);
        if (!indexed_) attributes.set("rolled", step * block_);
        return add(at_.op.kind, now, attributes, {});
    }

    const OpLayouts& at_;
    const AddPart& part_;
    std::vector<ValueId> inputs_;
    int64_t steps_, block_;
    bool indexed_ = false;
    std::vector<size_t> travelling_;  ///< operands that are rolled from step to step
};

}  // namespace

std::optional<AxisId> ring_axis(const OpLayouts& at) {
    std::optional<AxisId> ring;
    const Op& op = at.op;
    const Shape &q = shape_of(at.program, op.inputs[0]), &k = shape_of(at.program, op.inputs[1]);
    for (const AxisId axis : at.asked[1]) {
        if (at.inputs[1].at(axis) != Placement::split(seq_dim) || at.mesh.size(axis) == 1) continue;
        const std::string name = fmt::format("{}={}", at.mesh.axis(axis).name, at.mesh.size(axis));
        const auto refuse = [&](const std::string& what) {
            throw Error(op.origin, fmt::format("cannot pass keys of {} around {}: {}",
                                               describe(at.program, op.outputs[0]), name, what));
        };
        if (ring)
            refuse(fmt::format("a ring over {} passes them already; mark their use as split over one axis",
                               at.mesh.axis(*ring).name));
        if (op.attributes.has("blocks")) refuse("the op has blocks of its own; leave blocks out, or gather its keys");
        if (at.inputs[1].splits()[seq_dim].front() != axis)
            refuse(fmt::format("their sequence is split by {} outside; split it over the axis of the ring first",
                               at.mesh.axis(at.inputs[1].splits()[seq_dim].front()).name));
        for (const int64_t size : {q[seq_dim], k[seq_dim]})
            if (size % at.mesh.size(axis) != 0)
                refuse(fmt::format("a sequence of {} is not a multiple of {}", size, at.mesh.size(axis)));
        ring = axis;
    }
    return ring;
}

std::vector<ValueId> add_attention(const OpLayouts& at, const AddPart& add, const std::vector<ValueId>& inputs,
                                   std::optional<AxisId> ring, const std::vector<ValueId>& made) {
    if (!ring) return add(at.op.kind, inputs, at.op.attributes, made);
    Ring parts(at, add, inputs, *ring);
    return at.op.outputs.size() == 2 ? parts.forward(made) : parts.backward(made);
}

}  // namespace orrery::ops
