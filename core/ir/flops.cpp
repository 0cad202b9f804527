#include "ir/flops.h"

#include <algorithm>
#include <vector>

#include "ir/op.h"
#include "ir/plugin_ops.h"

namespace orrery {
namespace {

bool multiplies(const Op& op) {
    const Work work = op_def(op.kind).work;
    return work == Work::product || work == Work::weight_product || work == Work::attention_gradient;
}

/// The op without a mask, where all its pairs count.
Op counted(Op op, MaskedPairs masked) {
    const Work work = op_def(op.kind).work;
    if (masked == MaskedPairs::counted && (work == Work::attention || work == Work::attention_gradient))
        for (const char* key : {"window", "causal"}) op.attributes.erase(key);
    return op;
}

}  // namespace

int64_t flops(const Program& program, const Op& op) {
    const OpDef& def = op_def(op.kind);
    return call_op(def.name, "flops", [&] { return def.flops(program, op); });
}

int64_t product_flops(const Program& program, const Op& op) { return op_def(op.kind).product ? flops(program, op) : 0; }

int64_t forward_flops(const Program& program, const Op& op) {
    if (!op_def(op.kind).logits) return product_flops(program, op);
    Op alone = op;
    alone.outputs.resize(std::min<size_t>(alone.outputs.size(), 2));  // the sum and the count
    return product_flops(program, alone);
}

double model_flops(const Program& program, MaskedPairs masked) {
    std::vector<int64_t> backward(program.ops.size(), 0);  // by forward op: FLOPs of its gradients
    bool differentiated = false;
    for (const Op& op : program.ops) {
        differentiated |= op.phase == Phase::backward;
        if (op.phase == Phase::backward && op.forward != none)
            backward[op.forward] += multiplies(op) ? flops(program, counted(op, masked)) : 0;
    }
    double total = 0;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        if (op.phase != Phase::forward) continue;
        const int64_t own = product_flops(program, counted(op, masked));
        const bool known = differentiated && !find_plugin_op(op.kind);  // a plugin does not tell FLOPs of gradients
        total += static_cast<double>(own + (known ? std::min(2 * own, backward[i]) : 2 * own));
    }
    return total;
}

}  // namespace orrery
