#include "sim/software/expert_loads.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ir/counted_rows.h"
#include "ir/op.h"
#include "plan/print.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

/// Sets the dims of a kernel's operands that are slots to `rows`. They are the dims with the factor of the next to last
/// dim of the first operand.
void set_rows(const FactorRule& rule, int64_t rows, KernelSpec& spec) {
    const FactorRule::Dims& x = rule.inputs.front();
    const auto& slots = x[x.size() - 2];
    if (slots.empty()) return;  // one slot
    const auto set = [&](const std::vector<FactorRule::Dims>& dims, std::vector<TensorType>& types) {
        for (size_t o = 0; o < std::min(dims.size(), types.size()); ++o)
            for (size_t d = 0; d < std::min(dims[o].size(), types[o].shape.size()); ++d)
                if (dims[o][d] == slots) types[o].shape[d] = rows;
    };
    set(rule.inputs, spec.inputs);
    set(rule.outputs, spec.outputs);
}

}  // namespace

ExpertLoads with_expert_loads(Plan plan, double times) {
    ExpertLoads made;
    double filled = 0, dropped = 0;
    for (RankClass& c : plan.classes) {
        std::map<std::pair<int, int64_t>, int>
            changed;  // index of the kernel with so many rows, by that of the original
        for (Instruction& i : c.stream) {
            if (i.opcode != Opcode::kernel || i.op == none) continue;
            const Op& op = plan.program.op(i.op);
            if (c.kernels[at(i.kernel)].op != op.kind) continue;
            const std::optional<CountedRows> counted = counted_rows(plan.program, op);
            if (!counted) continue;
            const auto rows = std::max<int64_t>(1, std::llround(std::ceil(counted->rows(times))));
            const auto [known, fresh] = changed.try_emplace({i.kernel, rows}, static_cast<int>(c.kernels.size()));
            if (fresh) {
                KernelSpec spec = c.kernels[at(i.kernel)];
                set_rows(op_def(op.kind).rule(plan.program, op), rows, spec);
                c.kernels.push_back(std::move(spec));
            }
            i.kernel = known->second;
            ++made.launches;
            filled += counted->rows(times) / static_cast<double>(counted->slots);
            dropped += std::max(0.0, 1 - counted->rows(times) / (times * counted->mean()));
        }
    }
    if (made.launches > 0) {
        made.slots = filled / static_cast<double>(made.launches);
        made.dropped = dropped / static_cast<double>(made.launches);
    }
    plan.fingerprint = for_prices_alone;
    made.plan = std::move(plan);
    return made;
}

}  // namespace orrery
