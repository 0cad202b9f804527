#include <algorithm>
#include <utility>

#include "plan/access.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

/// The last writers of each buffer in a stream. A repeated stretch is stored once, as its first repetition, and its
/// waits are those of every repetition (orrery/plan.h, Repeat).
struct Writers {
    explicit Writers(const RankClass& c) : brought(c.buffers.size(), none), made(c.buffers.size(), none) {}
    std::vector<int> brought;  ///< for each buffer: index of the communication that wrote it
    std::vector<int> made;     ///< for each buffer: index of the kernel or copy that wrote it
};

std::vector<int> waits_of_communication(const RankClass& c, const Instruction& i, const Writers& writers) {
    std::vector<int> waits;
    for (const int wait : i.waits)
        if (c.stream[at(wait)].axis == none) waits.push_back(wait);
    if (i.opcode == Opcode::receive) return waits;
    for (size_t o = 0; o < i.operands.size(); o += 2)  // operands are pairs of an input and an output
        for (const int writer : {writers.brought[at(i.operands[o].buffer)], writers.made[at(i.operands[o].buffer)]})
            if (writer != none) waits.push_back(writer);
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    return waits;
}

}  // namespace

void wait_for_reads(RankClass& c) {
    Writers writers(c);
    std::vector<char> awaited(c.stream.size(), 0);  // by instruction: whether a kernel waits for it already
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        if (i.axis != none) {
            i.waits = waits_of_communication(c, i, writers);
            if (i.opcode == Opcode::receive) writers.brought[at(i.operands[0].buffer)] = index;
            for (size_t o = 1; o < i.operands.size(); o += 2) writers.brought[at(i.operands[o].buffer)] = index;
            continue;
        }
        i.waits.clear();
        for_each_access(c, i, [&](const Operand& o, bool reads, bool writes) {
            const int from = writers.brought[at(o.buffer)];
            if (reads && from != none && !std::exchange(awaited[at(from)], 1)) i.waits.push_back(from);
            if (writes) writers.made[at(o.buffer)] = index;
        });
        std::sort(i.waits.begin(), i.waits.end());
    }
}

void wait_for_messages(RankClass& c, bool in_pairs) {
    const auto is_forward = [](const Instruction& i) { return i.fragment.kind == Fragment::Kind::forward; };
    int last = none;
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        if (is_message(i.opcode) && i.fragment.micro >= 0 && !(in_pairs && i.opcode == Opcode::receive)) last = index;
        if (i.axis != none || last == none) continue;
        if (in_pairs && is_forward(c.stream[at(last)]) && !is_forward(i)) continue;
        if (std::find(i.waits.begin(), i.waits.end(), last) == i.waits.end()) i.waits.push_back(last);
        last = none;
    }
}

}  // namespace orrery
