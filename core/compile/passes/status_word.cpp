#include "compile/passes/status_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/op.h"
#include "layout/stages.h"
#include "orrery/plan.h"

namespace orrery {
namespace {

constexpr Status largest = Status::leave;
constexpr int step_bits = 24;
static_assert(step_bits * static_cast<int>(largest) < 120);  // f32 reaches 2^128

/// The axes over which the loss is reduced in messages that the status word can share (`bucket` is set), in order.
std::vector<AxisId> axes_of_loss(const Program& program, const Mesh& mesh) {
    std::vector<AxisId> axes;
    const auto loss = program.result("loss_sum");
    for (OpId maker = loss ? program.value(*loss).op : none; maker != none;) {
        const Op& op = program.op(maker);
        if (collective_of(op) != Opcode::all_reduce) break;
        const std::string name = op.attributes.text("axis");
        const auto axis = mesh.over(name);
        if (axis && !mesh.axis(*axis).sequential && program.bucket_bytes(name, op.phase) > 0) axes.push_back(*axis);
        maker = program.value(op.inputs[0]).op;
    }
    std::reverse(axes.begin(), axes.end());
    return axes;
}

ValueId new_value(Program& program, Shape shape, Layout layout) {
    Value value;
    value.dims.resize(shape.size());
    value.type = {DType::f32, std::move(shape)};
    value.layout = std::move(layout);
    program.values.push_back(std::move(value));
    return std::ssize(program.values) - 1;
}

Op record(std::string_view kind, Attributes attributes, ValueId from, ValueId to) {
    Op op;
    op.kind = kind;
    op.attributes = std::move(attributes);
    op.inputs = {from};
    op.outputs = {to};
    return op;
}

void insert(Program& program, std::vector<Op> ops) {
    const auto behind =
        std::find_if(program.ops.begin(), program.ops.end(), [](const Op& op) { return op.phase != Phase::forward; });
    program.ops.insert(behind, std::make_move_iterator(ops.begin()), std::make_move_iterator(ops.end()));
    for (size_t i = 0; i < program.ops.size(); ++i)
        for (const ValueId output : program.ops[i].outputs) program.value(output).op = i;
}

}  // namespace

float word_of(Status status) {
    return status == Status::go_on ? 0.0f : std::ldexp(1.0f, step_bits * (static_cast<int>(status) - 1));
}

Status status_of(float sum) {
    if (!(sum >= 0))
        throw Error(fmt::format("the sum of the ranks' status words is {}, expected 0 or more", sum), Fault::failed);
    for (int status = static_cast<int>(largest); status > 0; --status)
        if (sum >= word_of(static_cast<Status>(status))) return static_cast<Status>(status);
    return Status::go_on;
}

void add_status(Program& program, const Mesh& mesh, const AxisCarriers& carriers) {
    if (mesh.ranks() == 1) return;
    if (program.find(status_name) || program.result(status_name))
        throw Error(fmt::format("the name \"{}\" is reserved for the status of ranks: rename the input or result",
                                status_name));
    std::vector<AxisId> axes = axes_of_loss(program, mesh);
    const auto summed_over = [&](AxisId id) {
        return std::any_of(axes.begin(), axes.end(), [&](AxisId axis) {
            const std::vector<AxisId>& parts = mesh.parts(axis);
            return std::find(parts.begin(), parts.end(), id) != parts.end();
        });
    };
    std::vector<AxisId> others;
    for (AxisId a = 0; a < std::ssize(mesh.axes()); ++a)
        if (!mesh.axes()[a].sequential && mesh.axes()[a].size > 1 && !summed_over(a)) others.push_back(a);
    for (const AxisId axis : join_axes(mesh, carriers, others)) axes.push_back(axis);
    // With a pipeline, only one stage has the loss of a micro-batch, so there is one status word per step.
    const AxisId micro = stage_count(program, mesh) == 1 ? mesh.sequential_axis().value_or(none) : none;

    Layout whole(1), summed(0);
    for (const AxisId axis : axes)
        for (const AxisId part : mesh.parts(axis)) {
            whole.set(part, Placement::partial(ReduceOp::sum));
            summed.set(part, Placement::partial(ReduceOp::sum));
        }
    if (micro != none) {
        whole.set(micro, Placement::split(0));
        summed.set(micro, Placement::partial(ReduceOp::sum));
    }
    const ValueId own = new_value(program, {micro != none ? mesh.microbatches() : 1}, whole);
    program.value(own).name = status_name;
    program.value(own).role = Role::input;
    std::vector<Op> ops;
    ValueId word = new_value(program, {}, summed);
    ops.push_back(record("sum", {{"dims", std::vector<int64_t>{0}}}, own, word));
    if (micro != none) summed.set(micro, Placement::replicated());
    for (const AxisId axis : axes) {
        for (const AxisId part : mesh.parts(axis)) summed.set(part, Placement::replicated());
        const ValueId next = new_value(program, {}, summed);
        Attributes attributes{{"axis", mesh.axis(axis).name}, {"op", std::string(name_of(ReduceOp::sum))}};
        attributes.set("cause", fmt::format("result {}", status_name));
        ops.push_back(record("all_reduce", std::move(attributes), word, next));
        word = next;
    }
    insert(program, std::move(ops));
    program.results.push_back({std::string(status_name), word});
}

}  // namespace orrery
