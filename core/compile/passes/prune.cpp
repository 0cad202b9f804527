#include "compile/passes/prune.h"

#include <vector>

#include "ir/build.h"
#include "ir/op.h"

namespace orrery {

Program prune(const Program& program) {
    std::vector<bool> needed(program.values.size());
    for (const Result& result : program.results) needed[result.value] = true;
    std::vector<bool> runs(program.ops.size());
    for (size_t i = program.ops.size(); i-- > 0;) {
        for (const ValueId id : program.ops[i].outputs) runs[i] = runs[i] || needed[id];
        if (!runs[i]) continue;
        for (const ValueId id : program.ops[i].inputs) needed[id] = true;
        for (const ValueId id : program.ops[i].outputs) needed[id] = true;
    }
    Program out;
    out.name = program.name;
    std::vector<ValueId> moved(program.values.size(), none);
    std::vector<OpId> op_moved(program.ops.size(), none);
    for (size_t i = 0, next = 0; i < runs.size(); ++i)
        if (runs[i]) op_moved[i] = static_cast<OpId>(next++);
    for (size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        moved[i] = out.values.size();
        Value value = program.values[i];
        if (value.op != none) value.op = op_moved[value.op];
        out.values.push_back(std::move(value));
    }
    for (size_t i = 0; i < runs.size(); ++i) {
        if (!runs[i]) continue;
        Op op = program.ops[i];
        for (ValueId& id : op.inputs) id = moved[id];
        for (ValueId& id : op.outputs) id = moved[id];
        out.ops.push_back(std::move(op));
    }
    for (const Result& result : program.results) out.results.push_back({result.name, moved[result.value]});
    return out;
}

Program keep_logits(const Program& forward) {
    Program kept;
    const Op* loss = nullptr;
    for (const Op& op : forward.ops) {
        if (!op_def(op.kind).loss) continue;
        if (loss) return kept;
        loss = &op;
    }
    if (!loss) return kept;
    kept = forward;
    ValueId logits = loss->inputs.at(0);
    if (const auto logits_of = op_def(loss->kind).logits) {
        Op product = logits_of(*loss);
        Builder builder(kept);
        builder.set_scope(loss->scope);
        logits = builder.one(product.kind, std::move(product.inputs), std::move(product.attributes), loss->origin);
    }
    kept.results = {{"logits", logits}};
    return prune(kept);
}

}  // namespace orrery
