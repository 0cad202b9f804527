#include "plan/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "plan/access.h"
#include "plan/lower/buffers.h"
#include "plan/opening.h"
#include "plan/print.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

class Form {
public:
    Form(const Plan& plan, const RankClass& c, const Network& contracts)
        : plan_(plan), class_(c), contracts_(contracts), opening_(opening(plan.program, c)) {}

    void run() {
        if (repeats(class_))
            repeat();
        else if (class_.repeat.begin != 0 || class_.repeat.end != 0 || class_.repeat.times != 1)
            throw Error(fmt::format("class {}: invalid repeat: its instructions run {} times",
                                    &class_ - plan_.classes.data(), class_.repeat.times));
        frames();
        for (const Buffer& b : class_.buffers) buffer(b);
        for (index_ = 0; index_ < std::ssize(class_.stream); ++index_) instruction(at());
    }

private:
    const Instruction& at() const { return class_.stream[index_]; }

    [[noreturn]] void fail(const std::string& why) const { throw Error(describe(plan_, class_, index_) + ": " + why); }

    void buffer(const Buffer& b) const {
        const auto id = &b - class_.buffers.data();
        if (b.bytes < 0 || b.offset < 0 || b.offset % arena_alignment != 0)
            throw Error(fmt::format("misaligned buffer b{}: its offset {} is not a multiple of {}", id, b.offset,
                                    arena_alignment));
        if (b.arena == Arena::scratch && b.first >= 0 && b.offset + b.bytes > class_.scratch_bytes)
            throw Error(fmt::format("buffer b{} ends at {}, past the scratch arena of {} bytes", id, b.offset + b.bytes,
                                    class_.scratch_bytes));
    }

    /// Checks that the repeated part is in the stream, and that instructions of the run before it match those in it.
    void repeat() {
        const Repeat& r = class_.repeat;
        const int size = class_.stream.size();
        if (r.length() <= 0 || r.from() < 0 || r.end > size || r.micros <= 0 ||
            r.micros > (plan_.mesh.microbatches() - 1) / (r.times - 1))
            throw Error(fmt::format(
                "class {}: invalid repeat: instructions {} to {} of {}, equal to those from {} on, cannot run {} "
                "times for {} of {} micro-batches each",
                &class_ - plan_.classes.data(), r.begin, r.end, size, r.from(), r.times, r.micros,
                plan_.mesh.microbatches()));
        if (is_message(class_.stream[r.begin - 1].opcode))
            throw Error(fmt::format(
                "class {}: invalid repeat: the instructions that run {} times begin at {}, directly after a "
                "message, so the groups of messages in the first run would differ from later runs",
                &class_ - plan_.classes.data(), r.times, r.begin));
        const std::vector<int> groups = groups_of(plan_, class_, contracts_);
        const auto group = [&](int i) { return groups[i]; };
        for (index_ = r.from(); index_ < r.begin; ++index_) {
            const Instruction &x = at(), &y = class_.stream[index_ + r.length()];
            const bool grouped = group(index_) != none;
            if (x.opcode != y.opcode || x.queue != y.queue || x.axis != y.axis || x.peer != y.peer ||
                grouped != (group(index_ + r.length()) != none) ||
                (grouped && index_ > r.from() && group(index_) + r.length() != group(index_ + r.length())))
                fail(fmt::format("differs from instruction {}, the same instruction one repetition later",
                                 index_ + r.length()));
        }
    }

    void frames() const {
        const int64_t micros = plan_.mesh.microbatches();
        for (size_t kind = 0; kind < class_.frames.size(); ++kind) {
            const Frames& f = class_.frames[kind];
            const auto same_pool = [&](const Frames& other) {
                return other.pool != f.pool ||
                       (other.offset == f.offset && other.stride == f.stride && other.slots == f.slots);
            };
            const bool slots =
                std::ssize(f.slot_of) == micros &&
                std::all_of(f.slot_of.begin(), f.slot_of.end(), [&](int slot) { return slot >= 0 && slot < f.slots; });
            if (f.pool < 0 || f.pool >= std::ssize(class_.frames) || f.offset < 0 || f.stride <= 0 || f.slots <= 0 ||
                f.offset % arena_alignment != 0 || f.stride % arena_alignment != 0 ||
                f.stride > (class_.scratch_bytes - f.offset) / f.slots || !slots ||
                !std::all_of(class_.frames.begin(), class_.frames.end(), same_pool))
                throw Error(
                    fmt::format("frames {} of {} slots of {} bytes at {} are outside the scratch arena of {} bytes, "
                                "or differ from their pool",
                                kind, f.slots, f.stride, f.offset, class_.scratch_bytes));
            for (const Frames& other : class_.frames)
                if (other.pool != f.pool && other.offset < f.offset + f.stride * f.slots &&
                    f.offset < other.offset + other.stride * other.slots)
                    throw Error(fmt::format("frames at {} and {} overlap", f.offset, other.offset));
        }
        for (const Buffer& b : class_.buffers) {
            if (b.frames == none) continue;
            const bool known = b.frames >= 0 && b.frames < std::ssize(class_.frames) && b.arena == Arena::scratch;
            if (!known || b.micro < 0 || b.micro >= stored_micros(class_, plan_.mesh) ||
                b.bytes > class_.frames[b.frames].stride ||
                b.offset != address(class_, {static_cast<int>(&b - class_.buffers.data()), 0, {}, none, 0}, 0))
                throw Error(fmt::format("buffer b{} is not inside its frame", &b - class_.buffers.data()));
        }
        if (repeats(class_) && !slots_turn(class_))
            throw Error(
                fmt::format("class {}: frames share a slot in the first run of its repeated instructions, but not "
                            "in every run",
                            &class_ - plan_.classes.data()));
    }

    void instruction(const Instruction& i) {
        const bool moves = i.opcode == Opcode::send || i.opcode == Opcode::receive;
        if (i.opcode == Opcode::kernel) {
            kernel(i);
        } else if (i.operands.size() < (moves ? 1u : 2u)) {
            fail(fmt::format("has {} operands", i.operands.size()));
        }
        for (const Operand& o : i.operands) operand(o);
        for (int wait : i.waits) {
            if (wait < 0 || wait >= index_)
                fail(fmt::format("waits for instruction {}, which does not come before it", wait));
            if (class_.stream[wait].queue == i.queue)
                fail(
                    fmt::format("waits for instruction {} of its own queue, which runs in order without a wait", wait));
        }
        if (i.opcode == Opcode::copy && i.operands[0].type.bytes() != i.operands[1].type.bytes())
            fail("copies between operands of different sizes");
        if (i.opcode != Opcode::kernel && i.opcode != Opcode::copy) communication(i);
    }

    void kernel(const Instruction& i) const {
        if (i.kernel < 0 || i.kernel >= std::ssize(class_.kernels)) fail("has no kernel");
        const KernelSpec& spec = class_.kernels[i.kernel];
        if (i.operands.size() != spec.inputs.size() + spec.outputs.size())
            fail(fmt::format("has {} operands, but its kernel expects {}", i.operands.size(),
                             spec.inputs.size() + spec.outputs.size()));
        for (size_t o = 0; o < i.operands.size(); ++o) {
            const bool output = o >= spec.inputs.size();
            const TensorType& type = output ? spec.outputs[o - spec.inputs.size()] : spec.inputs[o];
            if (i.operands[o].type != type)
                fail(fmt::format("operand {} is {}, its kernel expects {}", o, i.operands[o].type.text(), type.text()));
        }
        if (i.workspace != none) workspace(i);
    }

    void workspace(const Instruction& i) const {
        if (i.workspace < 0 || i.workspace >= std::ssize(class_.buffers)) fail("its workspace has no buffer");
        const Buffer& b = class_.buffers[i.workspace];
        if (b.arena != Arena::scratch || index_ < b.first || index_ > b.last)
            fail(fmt::format("its workspace b{} is used outside its lifetime, or is not in the scratch arena",
                             i.workspace));
        const Operand own{i.workspace, 0, {DType::u8, {b.bytes}}, none};
        for (const Operand& o : i.operands)
            if (o.buffer >= 0 && o.buffer < std::ssize(class_.buffers) && overlap(own, o))
                fail(fmt::format("its workspace b{} overlaps its operand in b{}", i.workspace, o.buffer));
        if (b.offset % scratch_alignment != 0)
            fail(fmt::format("its workspace b{} is misaligned: its offset {} is not a multiple of {}", i.workspace,
                             b.offset, scratch_alignment));
    }

    void operand(const Operand& o) const {
        if (o.buffer < 0 || o.buffer >= std::ssize(class_.buffers)) fail("an operand has no buffer");
        const Buffer& b = class_.buffers[o.buffer];
        if (o.offset < 0 || o.offset + o.type.bytes() > b.bytes)
            fail(fmt::format("an operand of {} bytes at offset {} is out of bounds of buffer b{} of {} bytes",
                             o.type.bytes(), o.offset, o.buffer, b.bytes));
        const int64_t last = o.offset + o.step * class_.repeat.micros * last_run(class_);
        if (index_ >= class_.repeat.begin && (last < 0 || last + o.type.bytes() > b.bytes))
            fail(fmt::format("an operand at offset {} leaves the bounds of buffer b{} of {} bytes in later runs, at {}",
                             o.offset, o.buffer, b.bytes, last));
        if (o.offset % size_of(o.type.dtype) != 0 || o.step % size_of(o.type.dtype) != 0)
            fail("an operand is misaligned: its offset or step is not a multiple of its element size");
        if (index_ < b.first || index_ > b.last)
            fail(fmt::format("uses buffer b{} outside its lifetime {}..{}", o.buffer, b.first, b.last));
    }

    void communication(const Instruction& i) {
        if (i.axis < 0 || i.axis >= plan_.mesh.ids()) fail("has no axis");
        const Axis& axis = plan_.mesh.axis(i.axis);
        if (axis.sequential) fail("runs over a sequential axis");
        if (is_message(i.opcode) && plan_.mesh.joined(i.axis))
            fail("is a send or receive over several axes, expected one axis");
        if (i.queue == 0) fail("is communication on the compute queue, expected a queue of its own");
        const int least = !is_message(i.opcode) ? none : i.relative ? 1 : 0;
        if (i.peer < least || i.peer >= axis.size)
            fail(fmt::format("member {}{} is out of range: the axis has {}", i.relative ? "+" : "", i.peer, axis.size));
        if (is_message(i.opcode)) exchange(i, axis);
        queue(i, axis);
        const int64_t in = i.operands[0].type.bytes();
        const int64_t out = i.operands.size() > 1 ? i.operands[1].type.bytes() : in;
        const int64_t want = i.opcode == Opcode::all_gather       ? in * axis.size
                             : i.opcode == Opcode::reduce_scatter ? in / axis.size
                                                                  : in;
        if (i.operands.size() > 1 && out != want)
            fail(fmt::format("has {} bytes of input and {} of output; over {} members the output must have {}", in, out,
                             axis.size, want));
        if ((i.opcode == Opcode::reduce_scatter || i.opcode == Opcode::all_to_all) &&
            i.operands[0].type.count() % axis.size != 0)
            fail(fmt::format("{} elements are not divisible into {} equal blocks", i.operands[0].type.count(),
                             axis.size));
        const TransportContract& contract = contracts_.of(axis.name);
        const auto& dtypes = contract.dtypes;
        const DType dtype = i.operands[0].type.dtype;
        const bool reduces = i.opcode == Opcode::all_reduce || i.opcode == Opcode::reduce_scatter;
        if (reduces && !dtypes.empty() && std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end())
            fail(fmt::format("the transport of axis {} does not reduce {}; choose another for {} in [transport.axis]",
                             axis.name, name_of(dtype), join(split(axis.name, '+'), " and ")));
        if (i.opcode == Opcode::all_reduce && !contract.in_place && overlap(i.operands[0], i.operands[1]))
            fail(fmt::format("is in place, which the transport of axis {} does not support", axis.name));
    }

    /// Checks that a message of a roll goes as many members further as the op rolls blocks, or comes from as many.
    void exchange(const Instruction& i, const Axis& axis) const {
        if (i.op == none || i.op >= std::ssize(plan_.program.ops)) return;
        const Op& op = plan_.program.op(i.op);
        if (!exchanges_blocks(op_def(op.kind), op)) return;
        const int64_t by = exchange_offset(plan_.program, op, axis.size);
        const int64_t peer = i.opcode == Opcode::send ? by : axis.size - by;
        if (op.attributes.text("axis") != axis.name || !i.relative || i.peer != peer)
            fail(fmt::format("goes to member {}{} of axis {}, expected member +{} of axis {}", i.relative ? "+" : "",
                             i.peer, axis.name, peer, op.attributes.text("axis")));
    }

    /// Checks that the instructions of a queue share a lane of the transport, and hence run in order.
    void queue(const Instruction& i, const Axis& axis) {
        const auto lanes = contracts_.of(axis.name).lanes;
        const bool by_peer = is_message(i.opcode) && lanes != TransportContract::Lanes::communicator;
        const bool by_direction = is_message(i.opcode) && lanes == TransportContract::Lanes::peer_and_direction;
        const Lane lane{i.axis, by_peer ? i.peer : none, by_peer && i.relative, by_direction ? i.opcode : Opcode::copy,
                        index_ < opening_};
        const auto [known, fresh] = lanes_.try_emplace(i.queue, std::pair(lane, index_));
        if (!fresh && std::get<0>(known->second.first) != i.axis)
            fail(
                fmt::format("shares queue {} with instruction {} over another axis; no transport keeps different axes "
                            "in order",
                            i.queue, known->second.second));
        if (!fresh && std::get<4>(known->second.first) != std::get<4>(lane))
            fail(fmt::format("shares queue {} with instruction {} of the opening, which has another communicator",
                             i.queue, known->second.second));
        if (!fresh && known->second.first != lane)
            fail(
                fmt::format("shares queue {} with instruction {}, but the transport of axis {} does not keep both "
                            "in order: {}",
                            i.queue, known->second.second, axis.name, contracts_.of(axis.name).text()));
    }

    bool overlap(const Operand& a, const Operand& b) const {
        if (arena(class_, a) != arena(class_, b)) return false;
        const int64_t at_a = address(class_, a), at_b = address(class_, b);
        return at_a < at_b + b.type.bytes() && at_b < at_a + a.type.bytes();
    }

    const Plan& plan_;
    const RankClass& class_;
    const Network& contracts_;
    const int opening_;
    int index_ = 0;
    /// (axis, peer, whether the peer is relative, direction, whether in the opening)
    using Lane = std::tuple<AxisId, int, bool, Opcode, bool>;
    std::map<int, std::pair<Lane, int>> lanes_;
};

std::string largest_values(const Plan& plan, const RankClass& c) {
    std::vector<const Buffer*> buffers;
    for (const Buffer& b : c.buffers)
        if (b.arena == Arena::persistent || b.first >= 0) buffers.push_back(&b);
    const auto shown = static_cast<std::ptrdiff_t>(std::min<size_t>(3, buffers.size()));
    std::partial_sort(buffers.begin(), buffers.begin() + shown, buffers.end(),
                      [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
    std::vector<std::string> parts;
    for (auto it = buffers.begin(); it != buffers.begin() + shown; ++it)
        parts.push_back(fmt::format("{} {}{}", name_of((*it)->use),
                                    (*it)->value == none ? "" : label_of(plan.program, (*it)->value) + " ",
                                    bytes_text((*it)->bytes)));
    return join(parts, ", ");
}

}  // namespace

void check_form(const Plan& plan, const Network& contracts) {
    for (const RankClass& c : plan.classes) Form(plan, c, contracts).run();
}

void check_memory(const Plan& plan, int64_t memory_bytes) {
    if (memory_bytes <= 0) return;
    for (const RankClass& c : plan.classes) {
        const int64_t needed = c.persistent_bytes + c.scratch_bytes;
        if (needed <= memory_bytes) continue;
        throw MemoryError(fmt::format(
            "out of memory: program {} needs {} per rank, device.memory_gib is {:.6g}: {} too much; largest: {}",
            plan.program.name, bytes_text(needed), static_cast<double>(memory_bytes) / (1024.0 * 1024 * 1024),
            bytes_text(needed - memory_bytes), largest_values(plan, c)));
    }
}

void check(const Plan& plan, const Network& contracts, int64_t memory_bytes) {
    check_form(plan, contracts);
    check_values(plan, contracts);
    check_collectives(plan);
    check_deadlock(plan, contracts);
    check_memory(plan, memory_bytes);
}

}  // namespace orrery
