#include "ir/counted_rows.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/dispatch.h"

namespace orrery {

double CountedRows::rows(double times) const { return std::min(times * mean(), static_cast<double>(slots)); }

std::optional<CountedRows> counted_rows(const Program& program, const Op& op) {
    const std::vector<std::string_view>& names = op_def(op.kind).operands;
    const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), "counts") - names.begin());
    if (at >= op.inputs.size()) return std::nullopt;
    const Shape &x = program.value(op.inputs[0]).type.shape, &counts = program.value(op.inputs[at]).type.shape;
    const Op* counter = x.size() > 2 ? ops::assigned(program, op.inputs[at]) : nullptr;
    if (!counter) return std::nullopt;
    CountedRows rows;
    rows.experts = counts.back();
    rows.slots = x[x.size() - 2];
    const int64_t groups = program.value(op.inputs[at]).type.count() / rows.experts;
    const int64_t choices = program.value(counter->inputs[0]).type.count();
    rows.choices = static_cast<double>(choices) / static_cast<double>(std::max<int64_t>(1, groups));
    return rows;
}

}  // namespace orrery
