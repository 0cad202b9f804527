#include "ir/flops.h"

#include <unordered_set>

#include "ir/op.h"

namespace orrery {

int64_t flops(const Program& program, const Op& op) { return op_def(op.kind).flops(program, op); }

int64_t flops(const Program& program, Phase phase) {
    int64_t total = 0;
    for (const Op& op : program.ops) {
        if (op.phase == phase) total += flops(program, op);
    }
    return total;
}

int64_t model_flops(const Program& program, int64_t tokens) {
    std::unordered_set<ValueId> weights;
    int64_t attention = 0;
    for (const Op& op : program.ops) {
        if (op.phase != Phase::forward) continue;
        if (op.kind == "attention") attention += 3 * flops(program, op);
        if (op.kind != "matmul" && op.kind != "matmul_bias_gelu") continue;
        for (ValueId id : op.inputs) {
            const Value* value = &program.value(id);
            if (value->op != none && program.op(value->op).kind == "cast") {
                id = program.op(value->op).inputs[0];
                value = &program.value(id);
            }
            if (value->role == Role::param) weights.insert(id);
        }
    }
    int64_t elements = 0;
    for (ValueId id : weights) elements += program.value(id).type.count();
    return 6 * elements * tokens + attention;
}

}  // namespace orrery
