#include "plan/opening.h"

#include <algorithm>
#include <vector>

#include "ir/op.h"
#include "plan/access.h"
#include "plan/repeat.h"

namespace orrery {

int opening(const Program& program, const RankClass& c) {
    if (repeats(c) || std::ranges::none_of(program.values, is_sent)) return 0;
    std::vector<char> made(c.buffers.size(), 0);  // by buffer: whether kernels have made it of sent states alone
    int end = 0;
    for (int i = 0; i < std::ssize(c.stream); ++i) {
        const Instruction& instruction = c.stream[i];
        const bool collective = is_collective(instruction.opcode);
        bool fits = !is_message(instruction.opcode) && instruction.op != none &&
                    !op_def(program.op(instruction.op).kind).between_stages;
        int sources = 0;
        std::vector<int> written;
        for_each_access(c, instruction, [&](const Operand& operand, bool reads, bool writes) {
            const bool sent = operand.value != none && is_sent(program.value(operand.value));
            sources += reads;
            fits = fits && (!reads || sent || made[operand.buffer]) && (!writes || arena(c, operand) == Arena::scratch);
            if (writes) written.push_back(operand.buffer);
        });
        if (!fits || sources == 0) break;
        for (const int buffer : written) made[buffer] = !collective;
        if (collective) end = i + 1;
    }
    return end;
}

std::vector<int64_t> scratch_places(const std::vector<const Plan*>& plans, size_t k) {
    const auto aligned = [](int64_t bytes) {
        return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
    };
    std::vector<char> own;
    int64_t end = 64;
    for (const Plan* plan : plans) {
        const RankClass& c = plan->classes[k];
        own.push_back(opening(plan->program, c) > 0);
        if (!own.back()) end = std::max(end, c.scratch_bytes);
    }
    std::vector<int64_t> places;
    for (size_t i = 0; i < plans.size(); ++i) {
        if (own[i]) end = aligned(end);
        places.push_back(own[i] ? end : 0);
        if (own[i]) end += plans[i]->classes[k].scratch_bytes;
    }
    places.push_back(end);
    return places;
}

}  // namespace orrery
