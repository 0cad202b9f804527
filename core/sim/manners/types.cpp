#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/access.h"
#include "plan/repeat.h"
#include "sim/manners/passes.h"

namespace orrery {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

/// Of less than this every software sums the whole: norms of gradients, losses.
constexpr int64_t small_bytes = 1 << 20;

int64_t bytes_of(const Instruction& i) {
    int64_t bytes = 0;
    for (size_t o = 0; o < std::min<size_t>(2, i.operands.size()); ++o)
        bytes = std::max(bytes, i.operands[o].type.bytes());
    return bytes;
}

/// By index: bytes of bf16 that are cast before it. The stretch and what lies before it are alike.
std::vector<int64_t> casts(RankClass& c, const AxisFlags& data) {
    std::vector<int64_t> waiting(c.buffers.size(), 0), before(c.stream.size(), 0);
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        if (i.axis == none) {
            for_each_access(c, i, [&](const Operand& o, bool reads, bool) {
                if (reads) before[at(index)] += std::exchange(waiting[at(o.buffer)], 0);
            });
        } else if (i.opcode == Opcode::all_gather && data[at(i.axis)] && i.operands[1].type.dtype == DType::bf16) {
            waiting[at(i.operands[1].buffer)] = i.operands[1].type.bytes();
            for (Operand& o : i.operands) o.type.dtype = DType::f32;
        } else {
            for (size_t o = 1; o < i.operands.size(); ++o) waiting[at(i.operands[o].buffer)] = 0;
        }
    }
    if (repeats(c))
        for (int i = c.repeat.from(); i < c.repeat.begin; ++i) before[at(i)] = before[at(i + c.repeat.length())];
    return before;
}

}  // namespace

/// A cast reads 4 bytes of each number and writes 2, as a copy of 3 does.
void gather_f32(RankClass& c, const AxisFlags& data) {
    const std::vector<int64_t> before = casts(c, data);
    std::vector<int> now;
    std::vector<Instruction> stream;
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        for (int& wait : i.waits) wait = now[at(wait)];
        if (const int64_t bytes = before[at(index)] / 2 * 3; bytes > 0) {
            Instruction cast;
            cast.opcode = Opcode::copy;
            cast.fragment = i.fragment;
            cast.waits = std::exchange(i.waits, {});
            const Operand place{i.operands.front().buffer, 0, {DType::u8, {bytes}}, none, 0};
            cast.operands = {place, place};
            stream.push_back(std::move(cast));
        }
        now.push_back(static_cast<int>(stream.size()));
        stream.push_back(std::move(i));
    }
    const auto first_of = [&](int index) {  // with its cast
        return index == static_cast<int>(now.size()) ? static_cast<int>(stream.size())
                                                     : now[at(index)] - (before[at(index)] / 2 * 3 > 0 ? 1 : 0);
    };
    if (repeats(c)) {
        Repeat r = c.repeat;
        r.begin = first_of(c.repeat.begin);
        r.end = first_of(c.repeat.end);
        assert(r.from() == first_of(c.repeat.from()));
        c.repeat = r;
    }
    c.stream = std::move(stream);
}

void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types) {
    for (Instruction& i : c.stream) {
        const bool sums = i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter;
        if (!sums || !data[at(i.axis)]) continue;
        if (types.bf16)
            for (Operand& o : i.operands)
                if (o.type.dtype == DType::f32) o.type.dtype = DType::bf16;
        if (types.cut_all && i.opcode == Opcode::all_reduce && bytes_of(i) > small_bytes) {
            // Scattered in f32 and gathered in bf16 is 3/4 of an all-reduce in f32; summed whole and gathered 5/4.
            for (Operand& o : i.operands) o.type.shape = {o.type.count() / 4 * (types.whole ? 5 : 3)};
        } else if (types.whole && i.opcode == Opcode::reduce_scatter) {
            i.opcode = Opcode::all_reduce;
            i.operands[1].type = i.operands[0].type;
        }
    }
}

}  // namespace orrery
