// The part of Emitter that sends and receives: between pipeline stages, and of a rolled dim.
#include "ir/op.h"
#include "plan/access.h"
#include "plan/lower/emit.h"

namespace orrery::lowering {

/// The queue for messages with a peer: one queue per lane of the transport.
int Emitter::lane(AxisId axis, int peer, Opcode what) {
    const auto lanes = contract(axis).lanes;
    if (lanes == TransportContract::Lanes::communicator) return 1 + axis;
    if (lanes == TransportContract::Lanes::peer) what = Opcode::send;
    return further_queue(axis, peer, what);
}

/// The number of a queue that is not that of a named axis; such queues are numbered in order of first use.
int Emitter::further_queue(AxisId axis, int peer, Opcode what) {
    const int next = 1 + static_cast<int>(roles_.mesh.axes().size() + lanes_.size());
    return lanes_.try_emplace({axis, peer, what}, next).first->second;
}

/// The number of the queue for collectives over an axis.
int Emitter::queue_of(AxisId axis) {
    return roles_.mesh.joined(axis) ? further_queue(axis, none, Opcode::all_reduce) : 1 + axis;
}

void Emitter::transfer(const Step& step) {
    const Op& op = program().op(step.op);
    const bool sends = roles_.sends(step.op);
    const size_t other = sends ? op.attributes.integer("to") : op.stage;
    const Opcode what = sends ? Opcode::send : Opcode::receive;
    std::vector<Operand> operands = read_all(step);
    if (sends) {
        sent_[roles_.find(roles_.reads(step.op)[0], step.micro).instance] = 1;
    } else {
        operands.push_back(target(step, 0, {}, {}).place);
    }
    Instruction& instruction = emit(what, step, std::move(operands));
    instruction.axis = roles_.spread.axis;
    instruction.peer = roles_.spread.rank_of[other];
    instruction.tag = tag_of(step);
    instruction.queue = lane(instruction.axis, instruction.peer, what);
}

/// The tag of a message: different for each op and micro-batch.
int64_t Emitter::tag_of(const Step& step) const { return step.op * (roles_.micros + 1) + step.micro + 1; }

/// Rolls a split dim: every member sends its block to the member `by` further and receives one. The send comes first,
/// since a receive may block the host until every member has sent:
///
///     member   0    1    2    3        by = 1 of P = 4; each rank sends its block, S bytes
///     before  x0   x1   x2   x3
///     after   x3   x0   x1   x2
void Emitter::roll(const Step& step, Operand in, const Operand& out) {
    const Op& op = program().op(step.op);
    const AxisId axis = roles_.axis(op);
    const int64_t members = roles_.mesh.size(axis), by = exchange_offset(program(), op, members);
    // A group of messages completes as a whole, so a block received in the open one is copied first, which closes it.
    for (size_t at = out_.stream.size(); at-- > 0 && contract(axis).groups_messages();) {
        const Instruction& before = out_.stream[at];
        if (!is_message(before.opcode) || before.axis != axis) break;
        if (before.opcode != Opcode::receive || before.operands[0].buffer != in.buffer) continue;
        const Operand aside = temporary(in.type, in.value);
        emit(Opcode::copy, step, {in, aside});
        in = aside;
        break;
    }
    const auto message = [&](Opcode what, const Operand& operand, int64_t peer) {
        Instruction& instruction = emit(what, step, {operand});
        instruction.axis = axis;
        instruction.peer = static_cast<int>(peer);
        instruction.relative = true;
        instruction.tag = tag_of(step);
        instruction.queue = lane(axis, instruction.peer, what);
    };
    message(Opcode::send, in, by);
    message(Opcode::receive, out, members - by);
    out_.buffers[in.buffer].last = std::ssize(out_.stream) - 1;  // a receive there would wait for its own send
}

}  // namespace orrery::lowering
