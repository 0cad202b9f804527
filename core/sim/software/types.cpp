#include <algorithm>
#include <cassert>
#include <utility>

#include "ir/op.h"
#include "plan/access.h"
#include "plan/repeat.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

/// Size in bytes below which all software sends a tensor by all-reduce: gradient norms, losses.
constexpr int64_t small_bytes = 1 << 20;

int64_t bytes_of(const Instruction& i) {
    int64_t bytes = 0;
    for (size_t o = 0; o < std::min<size_t>(2, i.operands.size()); ++o)
        bytes = std::max(bytes, i.operands[o].type.bytes());
    return bytes;
}

}  // namespace

void insert_copies(RankClass& c, const std::vector<int64_t>& bytes) {
    std::vector<int> now;
    std::vector<Instruction> stream;
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        for (int& wait : i.waits) wait = now[at(wait)];
        if (bytes[at(index)] > 0) {
            Instruction copy;
            copy.opcode = Opcode::copy;
            copy.fragment = i.fragment;
            copy.waits = std::exchange(i.waits, {});
            const Operand place{i.operands.front().buffer, 0, {DType::u8, {bytes[at(index)]}}, none, 0};
            copy.operands = {place, place};
            stream.push_back(std::move(copy));
        }
        now.push_back(static_cast<int>(stream.size()));
        stream.push_back(std::move(i));
    }
    const auto first_of = [&](int index) {  // index in the new stream of the instruction, or of the copy before it
        if (index == static_cast<int>(now.size())) return static_cast<int>(stream.size());
        return now[at(index)] - (bytes[at(index)] > 0 ? 1 : 0);
    };
    if (repeats(c)) {
        const int from = c.repeat.from();
        c.repeat.begin = first_of(c.repeat.begin);
        c.repeat.end = first_of(c.repeat.end);
        assert(c.repeat.from() == first_of(from));
        (void)from;
    }
    c.stream = std::move(stream);
}

/// Models casts as copies: a cast reads 4 bytes of each number and writes 2, so it costs as much as a copy of 3 bytes.
void gather_f32(RankClass& c, const AxisFlags& data) {
    std::vector<int64_t> gathered(c.buffers.size(), 0), casts(c.stream.size(), 0);  // `gathered`: elements by buffer;
                                                                                    // `casts`: bytes by instruction
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        if (i.axis == none) {
            for_each_access(c, i, [&](const Operand& o, bool reads, bool) {
                if (reads) casts[at(index)] += 3 * std::exchange(gathered[at(o.buffer)], 0);
            });
        } else if (i.opcode == Opcode::all_gather && data[at(i.axis)] && i.operands[1].type.dtype == DType::bf16) {
            gathered[at(i.operands[1].buffer)] = i.operands[1].type.count();
            for (Operand& o : i.operands) o.type.dtype = DType::f32;
        } else {
            for (size_t o = 1; o < i.operands.size(); ++o) gathered[at(i.operands[o].buffer)] = 0;
        }
    }
    // The iteration before the repeated stretch gets the same casts as the stretch.
    for (int i = c.repeat.from(); repeats(c) && i < c.repeat.begin; ++i)
        casts[at(i)] = casts[at(i + c.repeat.length())];
    insert_copies(c, casts);
}

void gather_8_bit(RankClass& c, const AxisFlags& data) {
    for (Instruction& i : c.stream)
        if (i.opcode == Opcode::all_gather && data[at(i.axis)])
            for (Operand& o : i.operands)
                if (o.type.dtype == DType::bf16) o.type.dtype = DType::f8e4m3;
}

/// Models sums as copies: an f32 sum reads 2 and 4 bytes of each number, writes 4 and clears 2, like a copy of 6 bytes;
/// a bf16 sum reads 2 and 2 and writes 2.
void add_gradients_apart(RankClass& c, bool bf16) {
    std::vector<int64_t> sums(c.stream.size(), 0);
    for (size_t index = 0; index < c.stream.size(); ++index) {
        const Instruction& i = c.stream[index];
        if (i.opcode != Opcode::kernel || i.fragment.micro < 0) continue;
        const KernelSpec& spec = c.kernels[at(i.kernel)];
        const OpDef* def = find_op_def(spec.op);
        if (def && def->work == Work::weight_product && spec.outputs[0].dtype == DType::f32)
            sums[index] = (bf16 ? 3 : 6) * spec.outputs[0].count();
    }
    insert_copies(c, sums);
}

void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types) {
    for (Instruction& i : c.stream) {
        const bool sums = i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter;
        if (!sums || !data[at(i.axis)]) continue;
        if (types.bf16)
            for (Operand& o : i.operands)
                if (o.type.dtype == DType::f32) o.type.dtype = DType::bf16;
        if (types.cut_all && i.opcode == Opcode::all_reduce && bytes_of(i) > small_bytes) {
            // Bytes relative to an f32 all-reduce: scattering in f32 and gathering in bf16 is 3/4, all-reducing and
            // gathering 5/4.
            for (Operand& o : i.operands) o.type.shape = {o.type.count() / 4 * (types.whole ? 5 : 3)};
        } else if (types.whole && i.opcode == Opcode::reduce_scatter) {
            i.opcode = Opcode::all_reduce;
            i.operands[1].type = i.operands[0].type;
        }
    }
}

}  // namespace orrery
