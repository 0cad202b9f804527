#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/op.h"
#include "orrery/plan.h"

namespace orrery {

inline bool is_message(Opcode what) { return what == Opcode::send || what == Opcode::receive; }
inline bool is_collective(Opcode what) { return what != Opcode::kernel && what != Opcode::copy && !is_message(what); }

/// Calls use(operand, reads, writes) for each operand, then for the workspace. The values joined in an all_reduce are
/// omitted, because its flat operands contain them. An accumulating kernel also reads its sums.
template <class Use>
void for_each_access(const RankClass& rank_class, const Instruction& instruction, Use&& use) {
    const std::vector<Operand>& operands = instruction.operands;
    switch (instruction.opcode) {
        case Opcode::kernel: {
            const KernelSpec& spec = rank_class.kernels[instruction.kernel];
            const bool adds = spec.attributes.flag("accumulate");
            const std::vector<int> sums = adds ? op_def(spec.op).accumulates : std::vector<int>{};
            for (size_t i = 0; i < operands.size(); ++i) {
                const bool output = i >= spec.inputs.size();
                const int place = static_cast<int>(i) - std::ssize(spec.inputs);
                const bool summed = output && std::find(sums.begin(), sums.end(), place) != sums.end();
                use(operands[i], !output || summed, output);
            }
            if (const int own = instruction.workspace; own != none) {
                const int64_t bytes = rank_class.buffers[own].bytes;
                use(Operand{own, 0, {DType::u8, {bytes}}, none}, false, true);
            }
            break;
        }
        case Opcode::copy:
        case Opcode::all_reduce:
        case Opcode::all_gather:
        case Opcode::reduce_scatter:
        case Opcode::all_to_all:
            use(operands[0], true, false);
            use(operands[1], false, true);
            break;
        case Opcode::send: use(operands[0], true, false); break;
        case Opcode::receive: use(operands[0], false, true); break;
    }
}

/// The address of an operand's first byte, in bytes from the start of the operand's arena.
inline int64_t address(const RankClass& rank_class, const Operand& operand) {
    return rank_class.buffers[operand.buffer].offset + operand.offset;
}

inline Arena arena(const RankClass& rank_class, const Operand& operand) {
    return rank_class.buffers[operand.buffer].arena;
}

/// The ids of the joined mesh axes ("dp+pp") over which the plan communicates.
inline std::set<AxisId> joined_axes(const Plan& plan) {
    std::set<AxisId> joined;
    for (const RankClass& c : plan.classes)
        for (const Instruction& i : c.stream)
            if (i.axis != none && plan.mesh.joined(i.axis)) joined.insert(i.axis);
    return joined;
}

inline std::set<std::string> joined_axes(const std::vector<const Plan*>& plans) {
    std::set<std::string> names;
    for (const Plan* plan : plans)
        for (const AxisId axis : joined_axes(*plan)) names.insert(plan->mesh.axis(axis).name);
    return names;
}

inline int queues_of(const RankClass& rank_class) {
    int queues = 1;
    for (const Instruction& instruction : rank_class.stream) queues = std::max(queues, instruction.queue + 1);
    return queues;
}

}  // namespace orrery
