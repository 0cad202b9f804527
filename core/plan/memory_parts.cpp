#include "plan/memory_parts.h"

#include <algorithm>

#include "ir/op.h"

namespace orrery {

namespace {

bool passes_on(const Op& op) { return op_def(op.kind).casts || communicates(op_def(op.kind)); }

/// By value: whether it is a param's gradient, or this before or after casts and collectives.
std::vector<char> find_gradients(const Program& program) {
    std::vector<char> known(program.values.size(), 0);
    for (const auto& [param, grad] : program.grads()) known[grad] = 1;
    const auto any = [&](const std::vector<ValueId>& ids) {
        return std::ranges::any_of(ids, [&](ValueId id) { return known[id] != 0; });
    };
    for (size_t i = program.ops.size(); i-- > 0;)
        if (const Op& op = program.ops[i]; op.phase != Phase::forward && passes_on(op) && any(op.outputs))
            for (const ValueId id : op.inputs) known[id] = 1;
    for (const Op& op : program.ops)
        if (op.phase != Phase::forward && passes_on(op) && any(op.inputs))
            for (const ValueId id : op.outputs) known[id] = 1;
    return known;
}

}  // namespace

ValueId copied_param(const Program& program, ValueId value) {
    while (value != none && program.value(value).role != Role::param) {
        const OpId maker = program.value(value).op;
        if (maker == none || program.op(maker).inputs.size() != 1) return none;
        const OpDef& def = op_def(program.op(maker).kind);
        if (!def.casts && !is_view(def) && !communicates(def)) return none;
        value = program.op(maker).inputs[0];
    }
    return value;
}

std::vector<MemoryPart> memory_parts(const Plan& plan, const RankClass& c) {
    const std::vector<char> gradients = find_gradients(plan.program);
    std::vector<MemoryPart> parts;
    for (const Buffer& b : c.buffers) {
        const bool gradient = b.use == BufferUse::gradient || (b.value != none && gradients[b.value]);
        parts.push_back(b.use == BufferUse::workspace                 ? MemoryPart::workspaces
                        : gradient                                    ? MemoryPart::gradients
                        : copied_param(plan.program, b.value) != none ? MemoryPart::param_copies
                                                                      : MemoryPart::activations);
    }
    return parts;
}

}  // namespace orrery
