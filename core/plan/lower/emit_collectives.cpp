// Emitter: collectives. Communicators work on blocks along the outermost dim; other dims are packed and unpacked here.
#include <algorithm>

#include "plan/lower/emit.h"

namespace orrery::lowering {

namespace {

/// The shape with dim `dim` cut in [parts, size / parts].
Shape cut(const Shape& shape, size_t dim, int64_t parts) {
    Shape out(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim));
    out.push_back(parts);
    out.push_back(shape[dim] / parts);
    out.insert(out.end(), shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end());
    return out;
}

/// Moves dim `from` to the front.
std::vector<int64_t> to_front(size_t rank, size_t from) {
    std::vector<int64_t> perm{static_cast<int64_t>(from)};
    for (size_t i = 0; i < rank; ++i)
        if (i != from) perm.push_back(static_cast<int64_t>(i));
    return perm;
}

/// Moves the front dim to place `to`.
std::vector<int64_t> from_front(size_t rank, size_t to) {
    std::vector<int64_t> perm;
    for (size_t i = 1; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
    perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(to), 0);
    return perm;
}

Shape permuted(const Shape& shape, const std::vector<int64_t>& perm) {
    Shape out;
    for (int64_t dim : perm) out.push_back(shape[dim]);
    return out;
}

bool contiguous(const Shape& shape, size_t dim) {
    return std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim),
                       [](int64_t n) { return n == 1; });
}

Operand viewed(Operand operand, Shape shape) {
    operand.type.shape = std::move(shape);
    return operand;
}

KernelSpec transpose(std::vector<int64_t> perm) { return {"transpose", {{"perm", std::move(perm)}}, {}, {}}; }

}  // namespace

void Emitter::emit_collective(Opcode what, const Step& step, std::vector<Operand> operands) {
    const Op& op = program().op(step.op);
    Instruction& instruction = emit(what, step, std::move(operands));
    instruction.axis = roles_.axis(op);
    instruction.queue = queue_of(instruction.axis);
    if (what == Opcode::all_reduce || what == Opcode::reduce_scatter) instruction.reduce = reduce_of(op);
}

void Emitter::collective(const Step& step) {
    const std::pair key{step.op, step.micro};
    using Part = Step::Part;
    if (step.part == Part::end || step.part == Part::release) {
        const auto found = underway_.find(key);
        if (found == underway_.end())
            throw Error(program().op(step.op).origin,
                        "a collective ends before it begins; the order of steps is wrong");
        hold(found->second);
        if (step.part == Part::end) arrive(step, found->second);
        underway_.erase(found);
        return;
    }
    Underway message = send_off(step);
    if (step.part != Part::begin) arrive(step, message);
    if (step.part != Part::whole) underway_.emplace(key, std::move(message));
}

/// Packs what is sent, and sends it.
Emitter::Underway Emitter::send_off(const Step& step) {
    const Op& op = program().op(step.op);
    const AxisId axis = roles_.axis(op);
    if (axis == roles_.micro_axis)
        throw Error(op.origin, op.kind + " over micro is not possible: micro-batches run one after the other");
    const std::vector<Operand> reads = read_all(step);
    const Opcode what = roles_.def(op).collective.value();
    const bool reduces = what == Opcode::all_reduce;
    const std::vector<std::pair<int, int>> in_place = reduces && contract(axis).in_place
                                                          ? std::vector<std::pair<int, int>>{{0, 0}}
                                                          : std::vector<std::pair<int, int>>{};
    Underway message;
    message.to = target(step, 0, reads, in_place);
    message.made = message.to.add ? temporary(message.to.place.type, message.to.value) : message.to.place;
    switch (what) {
        case Opcode::all_reduce: emit_collective(what, step, {reads[0], message.made}); break;
        case Opcode::all_gather: gather(step, reads[0], message); break;
        case Opcode::reduce_scatter: scatter(step, reads[0], message.made); break;
        case Opcode::all_to_all: exchange(step, reads[0], message); break;
        case Opcode::kernel:
        case Opcode::copy:
        case Opcode::send:
        case Opcode::receive: throw Error(op.origin, "no instruction for collective '" + op.kind + "'");
    }
    for (const Operand& operand : out_.stream.back().operands) message.buffers.push_back(operand.buffer);
    return message;
}

/// Puts in order what has come, and adds it where it belongs.
void Emitter::arrive(const Step& step, const Underway& message) {
    if (!message.perm.empty()) emit_kernel(step, transpose(message.perm), {}, {message.came, message.out}, 1);
    finish(step, message.to, message.made);
    const ValueId id = program().op(step.op).outputs[0];
    if (roles_.value(id).per_micro && roles_.value(id).accumulated) accumulate(step, id, message.made);
}

/// The message's places are its own up to here.
void Emitter::hold(const Underway& message) {
    const int here = std::ssize(out_.stream) - 1;
    for (int id : message.buffers) {
        Buffer& buffer = out_.buffers[id];
        buffer.last = std::max(buffer.last, here);
    }
}

/// [A, L, B] on every member -> [P, A, L, B] -> [A, P L, B].
void Emitter::gather(const Step& step, const Operand& in, Underway& message) {
    const Op& op = program().op(step.op);
    const size_t dim = op.attributes.integer("dim");
    if (contiguous(in.type.shape, dim)) return emit_collective(Opcode::all_gather, step, {in, message.made});
    const int64_t parts = roles_.mesh.size(roles_.axis(op));
    Shape stacked = in.type.shape;
    stacked.insert(stacked.begin(), parts);
    message.came = temporary({in.type.dtype, stacked}, op.outputs[0]);
    message.perm = from_front(stacked.size(), dim);
    message.out = viewed(message.made, permuted(stacked, message.perm));
    emit_collective(Opcode::all_gather, step, {in, message.came});
}

/// [A, P L, B] -> [P, A, L, B] -> [A, L, B].
void Emitter::scatter(const Step& step, const Operand& in, const Operand& out) {
    const Op& op = program().op(step.op);
    const size_t dim = op.attributes.integer("dim");
    if (contiguous(in.type.shape, dim)) return emit_collective(Opcode::reduce_scatter, step, {in, out});
    const Shape split = cut(in.type.shape, dim, roles_.mesh.size(roles_.axis(op)));
    const std::vector<int64_t> perm = to_front(split.size(), dim);
    const Operand packed = temporary({in.type.dtype, permuted(split, perm)}, op.inputs[0]);
    emit_kernel(step, transpose(perm), {}, {viewed(in, split), packed}, 1);
    emit_collective(Opcode::reduce_scatter, step, {packed, out});
}

/// Split along `from` becomes split along `to`: block j of dim `to` goes to member j, whose blocks line up along
/// `from`.
void Emitter::exchange(const Step& step, const Operand& in, Underway& message) {
    const Op& op = program().op(step.op);
    const size_t from = op.attributes.integer("from");
    const size_t to = op.attributes.integer("to");
    const Operand& out = message.made;
    const Shape split = cut(in.type.shape, to, roles_.mesh.size(roles_.axis(op)));
    const std::vector<int64_t> out_of = to_front(split.size(), to);
    Operand sent = in;
    if (!contiguous(in.type.shape, to)) {
        sent = temporary({in.type.dtype, permuted(split, out_of)}, op.inputs[0]);
        emit_kernel(step, transpose(out_of), {}, {viewed(in, split), sent}, 1);
    }
    const Shape blocks = permuted(split, out_of);
    if (contiguous(out.type.shape, from)) return emit_collective(Opcode::all_to_all, step, {sent, out});
    message.came = temporary({in.type.dtype, blocks}, op.outputs[0]);
    message.perm = from_front(blocks.size(), from);
    message.out = viewed(out, permuted(blocks, message.perm));
    emit_collective(Opcode::all_to_all, step, {sent, message.came});
}

/// Several all-reduces in one message; the members' places in and out follow the flat operands.
void Emitter::joined(const Step& step) {
    const Bucket& bucket = order_.buckets[step.bucket];
    std::vector<Operand> members;
    for (const Bucket::Member& member : bucket.members) {
        const Op& op = program().op(member.op);
        members.push_back(read(op.inputs[0], -1));
        Spot& out = spot(roles_.instance(op.outputs[0], -1));
        out.written = true;
        members.push_back({out.buffer, out.offset, roles_.value(op.outputs[0]).type, op.outputs[0]});
    }
    if (bucket.members.size() == 1) return emit_collective(Opcode::all_reduce, step, std::move(members));
    const TensorType flat{bucket.dtype, {bucket.bytes / size_of(bucket.dtype)}};
    std::vector<Operand> operands{{members[0].buffer, 0, flat, none}, {members[1].buffer, 0, flat, none}};
    operands.insert(operands.end(), members.begin(), members.end());
    emit_collective(Opcode::all_reduce, step, std::move(operands));
}

}  // namespace orrery::lowering
