#include "ir/flops.h"

#include "ir/op.h"
#include "ir/plugin_ops.h"

namespace orrery {

int64_t flops(const Program& program, const Op& op) {
    const OpDef& def = op_def(op.kind);
    return call_op(def.name, "flops", [&] { return def.flops(program, op); });
}

int64_t product_flops(const Program& program, const Op& op) { return op_def(op.kind).product ? flops(program, op) : 0; }

double model_flops(const Program& program) {
    double total = 0;
    for (const Op& op : program.ops)
        if (op.phase == Phase::forward) total += 3 * static_cast<double>(product_flops(program, op));
    return total;
}

}  // namespace orrery
