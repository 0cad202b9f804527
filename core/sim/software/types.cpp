#include <algorithm>
#include <cassert>
#include <map>
#include <string>
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

void insert_copies(RankClass& c, const std::vector<Copies>& copies) {
    std::vector<int> now;
    std::vector<Instruction> stream;
    const bool launches = std::ranges::any_of(copies, [](const Copies& one) { return one.relaunch != none; });
    const std::vector<Instruction> original = launches ? c.stream : std::vector<Instruction>();
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        for (int& wait : i.waits) wait = now[at(wait)];
        const Copies& wanted = copies[at(index)];
        if (wanted.relaunch != none) {
            Instruction kernel = original[at(wanted.relaunch)];
            kernel.fragment = i.fragment;
            kernel.waits.clear();
            stream.push_back(std::move(kernel));
        }
        if (wanted.sum != none) {
            Instruction sum = original[at(wanted.sum)];
            sum.fragment = i.fragment;
            sum.waits = {static_cast<int>(stream.size()) - 1};
            i.waits.push_back(static_cast<int>(stream.size()));
            stream.push_back(std::move(sum));
        }
        for (int64_t n = 0; n < wanted.count && wanted.bytes > 0; ++n) {
            Instruction copy;
            copy.opcode = Opcode::copy;
            copy.fragment = i.fragment;
            if (wanted.after != none && n == 0)
                copy.waits = {now[at(wanted.after)]};
            else if (wanted.after == none)
                copy.waits = std::exchange(i.waits, {});
            const Operand place{i.operands.front().buffer, 0, {DType::u8, {wanted.bytes}}, none, 0};
            copy.operands = {place, place};
            stream.push_back(std::move(copy));
        }
        if (wanted.bytes > 0 && i.axis != none) i.waits = {static_cast<int>(stream.size()) - 1};
        now.push_back(static_cast<int>(stream.size()));
        stream.push_back(std::move(i));
    }
    const auto first_of = [&](int index) {  // index in the new stream of the instruction, or of its first copy
        if (index == static_cast<int>(now.size())) return static_cast<int>(stream.size());
        const Copies& before = copies[at(index)];
        return now[at(index)] - (before.bytes > 0 ? static_cast<int>(before.count) : 0) -
               (before.relaunch != none ? 1 : 0) - (before.sum != none ? 1 : 0);
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
    std::vector<int64_t> gathered(c.buffers.size(), 0);  // elements by buffer
    std::vector<Copies> casts(c.stream.size());
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        Instruction& i = c.stream[at(index)];
        if (i.axis == none) {
            for_each_access(c, i, [&](const Operand& o, bool reads, bool) {
                if (reads) casts[at(index)].bytes += 3 * std::exchange(gathered[at(o.buffer)], 0);
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
    std::vector<Copies> sums(c.stream.size());
    for (size_t index = 0; index < c.stream.size(); ++index) {
        const Instruction& i = c.stream[index];
        if (i.opcode != Opcode::kernel || i.fragment.micro < 0) continue;
        const KernelSpec& spec = c.kernels[at(i.kernel)];
        const OpDef* def = find_op_def(spec.op);
        if (def && def->work == Work::weight_product && spec.outputs[0].dtype == DType::f32)
            sums[index].bytes = (bf16 ? 3 : 6) * spec.outputs[0].count();
    }
    insert_copies(c, sums);
}

void recompute_whole(RankClass& c, const Program& program, const AxisFlags& data) {
    const auto block_of = [](const std::string& scope) {
        return scope.substr(0, scope.find('.', scope.find('.') + 1));
    };
    std::map<std::string, int> last;  // by block: the last GEMM of its forward pass
    std::map<int, int> sums;          // by GEMM: the collective that sums its output
    std::map<int, int> made;          // by buffer: the GEMM that has written it last
    std::vector<Copies> copies(c.stream.size());
    for (int index = 0; index < static_cast<int>(c.stream.size()); ++index) {
        const Instruction& i = c.stream[at(index)];
        if ((i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter) && !data[at(i.axis)])
            if (const auto found = made.find(i.operands[0].buffer); found != made.end()) sums[found->second] = index;
        if (i.opcode != Opcode::kernel || i.op == none || i.fragment.micro < 0) continue;
        const KernelSpec& spec = c.kernels[at(i.kernel)];
        for (size_t o = spec.inputs.size(); o < i.operands.size(); ++o) made.erase(i.operands[o].buffer);
        const OpDef* def = find_op_def(spec.op);
        if (!def || program.op(i.op).scope.find('.') == std::string::npos) continue;
        const std::string block = block_of(program.op(i.op).scope);
        if (i.fragment.kind == Fragment::Kind::forward) {
            if (def->work != Work::product) continue;
            last[block] = index;
            made[i.operands[spec.inputs.size()].buffer] = index;
        } else if (def->work == Work::attention && last.count(block) > 0) {
            copies[at(index)].relaunch = last.at(block);
            if (const auto sum = sums.find(last.at(block)); sum != sums.end()) copies[at(index)].sum = sum->second;
        }
    }
    insert_copies(c, copies);
}

/// A gathered param is also joined before and taken apart after the message: three copies of its bytes.
void copy_parts(RankClass& c, const Mesh& mesh, const AxisFlags& data, int64_t joined) {
    std::vector<Copies> copies(c.stream.size());
    int64_t bytes = 0, parts = 0, sent = 0;  // gathered since the last kernel; reduced since the last copies
    int gathered = none;
    for (size_t index = 0; index < c.stream.size(); ++index) {
        const Instruction& i = c.stream[index];
        if (i.axis == none && parts > 0)
            copies[index] = {std::max<int64_t>(1, 3 * std::exchange(bytes, 0) / parts), std::exchange(parts, 0),
                             gathered};
        if (i.axis == none || !data[at(i.axis)]) continue;
        const int64_t ranks = mesh.size(i.axis);
        for (size_t o = 1; o < i.operands.size() && i.opcode == Opcode::all_gather; o += 2)
            bytes += i.operands[o].type.bytes(), parts += ranks, gathered = static_cast<int>(index);
        for (size_t o = 0; o < i.operands.size() && i.opcode == Opcode::reduce_scatter; o += 2)
            sent += i.operands[o].type.bytes();
        if (sent >= joined) copies[index] = {std::exchange(sent, 0) / ranks, 2 * ranks, none};
    }
    insert_copies(c, copies);
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
