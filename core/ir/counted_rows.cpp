#include "ir/counted_rows.h"

#include <algorithm>

#include "ir/op.h"

namespace orrery {
namespace {

/// The op that counted the choices of each expert, of which `counts` or a part of it is an output; nullptr: another op.
const Op* counter_of(const Program& program, ValueId counts) {
    while (program.value(counts).op != none) {
        const Op& op = program.op(program.value(counts).op);
        const OpDef& def = op_def(op.kind);
        if (def.looks_up && def.looks_up->rows.output) {
            const auto loads = static_cast<size_t>(def.looks_up->rows.index);
            return loads < op.outputs.size() && op.outputs[loads] == counts ? &op : nullptr;
        }
        if (op.inputs.size() != 1 || !(def.collective || def.alias || def.moves != Moves::no)) return nullptr;
        counts = op.inputs[0];
    }
    return nullptr;
}

}  // namespace

double CountedRows::even() const { return rows(1); }

double CountedRows::rows(double times) const {
    return std::min(times * choices / static_cast<double>(experts), static_cast<double>(slots));
}

std::optional<CountedRows> counted_rows(const Program& program, const Op& op) {
    const std::vector<std::string_view>& names = op_def(op.kind).operands;
    const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), "counts") - names.begin());
    if (at >= op.inputs.size()) return std::nullopt;
    const Shape &x = program.value(op.inputs[0]).type.shape, &counts = program.value(op.inputs[at]).type.shape;
    const Op* counter = x.size() > 2 ? counter_of(program, op.inputs[at]) : nullptr;
    if (!counter) return std::nullopt;
    const auto ids = static_cast<size_t>(op_def(counter->kind).looks_up->ids);
    CountedRows rows;
    rows.experts = counts.back();
    rows.slots = x[x.size() - 2];
    int64_t groups = 1;
    for (size_t d = 0; d + 1 < counts.size(); ++d) groups *= counts[d];
    const int64_t choices = program.value(counter->inputs[ids]).type.count();
    rows.choices = static_cast<double>(choices) / static_cast<double>(std::max<int64_t>(1, groups));
    return rows;
}

}  // namespace orrery
