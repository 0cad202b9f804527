#include "compile/passes/differentiate.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/build.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "orrery/backward.h"

namespace orrery {
namespace {

// Marks by value whether it needs a gradient: params, and float results of ops that depend on them.
std::vector<char> wanted_values(const Program& program) {
    std::vector<char> wanted(program.values.size(), 0);
    for (ValueId id : program.params()) wanted[id] = is_float(program.value(id).type.dtype);
    for (const Op& op : program.ops) {
        const bool reached =
            std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) { return wanted[id] != 0; });
        if (!reached) continue;
        for (ValueId id : op.outputs) wanted[id] = is_float(program.value(id).type.dtype);
        for (int output : op_def(op.kind).constant_outputs) {
            wanted[op.outputs[output]] = 0;
        }
    }
    return wanted;
}

void check_loss(const Program& program, ValueId loss, const std::vector<char>& wanted) {
    const Value& value = program.value(loss);
    if (value.type != TensorType{DType::f32, {}}) {
        throw Error(value.origin,
                    fmt::format("the loss must be an f32 scalar, got {}; sum it", describe(program, loss)));
    }
    if (!wanted[loss]) {
        throw Error(value.origin, fmt::format("the loss {} does not depend on any param", describe(program, loss)));
    }
}

// The f32 gradient of a param: always a value of the backward pass, since an update may overwrite any other.
ValueId own_gradient(Backward& backward, const Program& program, ValueId param) {
    ValueId grad = backward.cast(backward.total(param), DType::f32);
    const Value& value = program.value(grad);
    const bool foreign = value.op == none || program.op(value.op).phase != Phase::backward;
    return foreign ? backward.one("scale", {grad}, {{"by", 1.0}}) : grad;
}

}  // namespace

std::vector<ValueId> differentiate(Program& program, ValueId loss, ValueId seed) {
    const size_t forward = program.values.size();
    const std::vector<char> wanted = wanted_values(program);
    check_loss(program, loss, wanted);
    std::vector<Backward::Slot> slots(program.values.size());
    if (seed == none)
        slots[loss].uniform = 1;
    else
        slots[loss].sum = seed;
    Builder builder(program);
    builder.set_phase(Phase::backward);
    Backward backward(program, builder, slots, wanted);
    std::vector<OpId> last(program.values.size(), none);
    for (OpId id = std::ssize(program.ops) - 1; id >= 0; --id) {
        const Op& op = program.op(id);
        const bool reached = std::any_of(op.outputs.begin(), op.outputs.end(),
                                         [&](ValueId out) { return wanted[out] && !slots[out].empty(); });
        if (!reached) continue;
        const OpDef& def = op_def(op.kind);
        if (!def.gradient) {
            throw Error(op.origin,
                        fmt::format("the loss depends on {}, an op that has no gradient", describe(program, op)));
        }
        for (ValueId input : op.inputs) last[input] = id;
        backward.begin(id);
        call_op(def.name, "gradient", [&] { def.gradient(backward); });
    }
    std::vector<char> taken(program.values.size(), 0);  // by value: read by an op, or the gradient of another param
    for (const Op& op : program.ops)
        for (ValueId input : op.inputs) taken[input] = 1;
    for (ValueId param : program.params()) {
        if (slots[param].empty()) continue;
        backward.begin(last[param]);
        ValueId grad = own_gradient(backward, program, param);
        if (static_cast<size_t>(grad) < taken.size() && taken[grad])
            grad = backward.named_like(grad, param);
        else if (static_cast<size_t>(grad) < taken.size())
            taken[grad] = 1;
        program.set_grad(param, grad);
        program.value(grad).dims = program.value(param).dims;  // a contribution may have lacked dim names
        if (program.value(grad).name.empty()) {
            builder.name(grad, program.value(param).name + ".grad", program.value(param).origin);
        }
    }
    std::vector<ValueId> gradients;
    for (size_t i = 0; i < forward; ++i) gradients.push_back(slots[i].sum);
    return gradients;
}

}  // namespace orrery
