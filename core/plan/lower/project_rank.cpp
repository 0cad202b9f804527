// LoopAnalysis: what one rank of the pipeline runs of a program.
#include <algorithm>

#include "plan/lower/loop_analysis.h"

namespace orrery::lowering {

bool LoopAnalysis::sends(OpId id) const {
    const Op& op = program.op(id);
    return spread.axis != none && is_transfer(def(id)) && spread.rank_of[op.stage] == rank;
}

/// Some of the op's work is this rank's. An op without a stage is everyone's who needs it.
bool LoopAnalysis::mine(const Op& op) const {
    if (spread.axis == none || op.stage == none) return true;
    if (spread.rank_of[op.stage] == rank) return true;
    return is_transfer(def(op)) && spread.rank_of[op.attributes.integer("to")] == rank;
}

int LoopAnalysis::chunk_of(OpId id) const {
    const Op& op = program.op(id);
    if (spread.axis == none || op.stage == none) return 0;
    const bool receives = is_transfer(def(id)) && !sends(id);
    const int stage = receives ? static_cast<int>(op.attributes.integer("to")) : op.stage;
    const auto& own = spread.stages[rank];
    return static_cast<int>(std::find(own.begin(), own.end(), stage) - own.begin());
}

/// What this rank reads for an op: nothing to receive, one part of a sum over stages.
std::vector<ValueId> LoopAnalysis::operands(OpId id) const {
    const Op& op = program.op(id);
    if (spread.axis == none || rank == none) return op.inputs;
    if (is_transfer(def(id)) && !sends(id)) return {};
    if (is_stage_sum(def(id))) return {op.inputs[rank]};
    return op.inputs;
}

/// Leaves the ops that this rank runs: those of its stages, and those of no stage that these need here.
void LoopAnalysis::take_share() {
    const auto here = [&](ValueId id) {
        const int at = spread.at[id];
        return at == none || at == rank;
    };
    for (const Result& result : program.results)
        if (here(result.value)) results.push_back(result);
    for (const Update& update : program.updates)
        if (here(update.target)) updates.push_back(update);
    used_.assign(values.size(), 0);
    auto use = [&](ValueId id) { used_[id] = 1; };
    for (const Result& result : results) use(result.value);
    for (const Update& update : updates) {
        use(update.value);
        use(update.target);
    }
    for (size_t i = ops.size(); i-- > 0;) {
        const Op& op = program.ops[i];
        const bool wanted =
            std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return used_[id] != 0; });
        const bool free = spread.axis != none && op.stage == none && !is_stage_sum(def(op));
        if (!mine(op) || (free && !wanted)) ops[i].section = Section::unused;
        if (ops[i].section == Section::unused) continue;
        for (ValueId input : operands(i)) use(input);
        for (ValueId output : makes(i)) use(output);
    }
}

/// This rank has a place for the value. What nobody reads rests on the first rank, inputs everywhere.
bool LoopAnalysis::touched(ValueId id) const {
    if (spread.axis == none || used_[id]) return true;
    const Value& v = program.value(id);
    if (v.role == Role::temporary || v.role == Role::input) return false;
    return spread.at[id] == rank;
}

}  // namespace orrery::lowering
