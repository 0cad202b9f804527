#include "compile/passes/prune.h"

#include <vector>

#include "ir/build.h"
#include "ir/op.h"
#include "layout/stages.h"

namespace orrery {

Program prune(const Program& program) {
    std::vector<bool> needed(program.values.size());
    for (const Result& result : program.results) needed[result.value] = true;
    for (const Update& update : program.updates) needed[update.target] = needed[update.value] = true;
    std::vector<bool> runs(program.ops.size());
    for (size_t i = program.ops.size(); i-- > 0;) {
        for (const ValueId id : program.ops[i].outputs) runs[i] = runs[i] || needed[id];
        if (!runs[i]) continue;
        for (const ValueId id : program.ops[i].inputs) needed[id] = true;
        for (const ValueId id : program.ops[i].outputs) needed[id] = true;
    }
    for (size_t i = 0; i < needed.size(); ++i)
        for (ValueId of = static_cast<ValueId>(i); needed[i] && of != none; of = program.value(of).of)
            needed[of] = true;
    Program out;
    out.name = program.name;
    out.codecs = program.codecs;
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
    for (Value& value : out.values)
        if (value.of != none) value.of = moved[value.of];
    for (const Result& result : program.results) out.results.push_back({result.name, moved[result.value]});
    for (const Update& update : program.updates) out.updates.push_back({moved[update.target], moved[update.value]});
    for (const Mark& mark : program.marks()) {
        const ValueId id = moved[mark.value];
        if (id == none) continue;
        if (mark.what == Mark::What::store)
            out.store(id, mark.axis, mark.placement, mark.origin, mark.optional);
        else
            out.use(id, mark.axis, mark.placement, mark.origin, mark.keep, mark.optional);
    }
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

Program keep_update(const Program& marked, const Mesh& mesh) {
    Program kept;
    if (stage_count(marked, mesh) > 1) {
        kept = marked;
        assign_stages(kept, mesh);
        const std::vector<int> stages = home_stages(kept);
        for (size_t i = 0; i < stages.size(); ++i) kept.values[i].stage = stages[i];
        kept = prune(kept);
    } else {
        kept = prune(marked);
    }
    if (!marked.pipeline().axis.empty()) kept.pipeline(marked.pipeline());
    for (const EdgeMark& edge : marked.edges()) kept.edge(edge.axis, edge.phase, edge.option, edge.value, {});
    return kept;
}

}  // namespace orrery
