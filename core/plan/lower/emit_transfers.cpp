// Emitter: messages between pipeline stages.
#include <algorithm>

#include "plan/lower/emit.h"

namespace orrery::lowering {

/// The queue of messages with one peer: as many as the transport keeps apart.
int Emitter::lane(AxisId axis, int peer, Opcode what) {
    const auto lanes = contract(axis).lanes;
    if (lanes == TransportContract::Lanes::communicator) return 1 + axis;
    if (lanes == TransportContract::Lanes::peer) what = Opcode::send;
    return further_queue(axis, peer, what);
}

/// Those of the named axes come first, the others in the order in which they are met.
int Emitter::further_queue(AxisId axis, int peer, Opcode what) {
    const int next = 1 + static_cast<int>(roles_.mesh.axes().size() + lanes_.size());
    return lanes_.try_emplace({axis, peer, what}, next).first->second;
}

/// Of an axis' collectives.
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
    instruction.tag = step.op * (roles_.micros + 1) + step.micro + 1;
    instruction.queue = lane(instruction.axis, instruction.peer, what);
}

/// What was sent stays until this rank knows that it has arrived. Were its place used at once, a receive into it would
/// wait for the peer, which may wait in the same way for this rank.
void Emitter::keep_sent() {
    const int end = std::ssize(out_.stream) - 1;
    for (size_t at = 0; at < order_.steps.size(); ++at) {
        const Step& s = order_.steps[at];
        if (s.bucket != none || !is_transfer(roles_.def(s.op)) || !roles_.sends(s.op)) continue;
        const auto found = order_.arrived_by.find(at);
        const int until = found == order_.arrived_by.end() ? end : first_of_step_[found->second];
        const Instruction& send = out_.stream[first_of_step_[at]];
        Buffer& buffer = out_.buffers[send.operands[0].buffer];
        buffer.last = std::max(buffer.last, until);
    }
}

/// The messages of a group proceed together: what one sends lasts until the end of it, so that no other is received
/// there. Groups are as the executor makes them, of messages side by side.
void Emitter::keep_groups() {
    int end = none;
    for (size_t at = out_.stream.size(); at-- > 0;) {
        const Instruction& in = out_.stream[at];
        const bool message = in.opcode == Opcode::send || in.opcode == Opcode::receive;
        if (!message || !contract(in.axis).groups_messages()) {
            end = none;
            continue;
        }
        if (end == none || out_.stream[at + 1].axis != in.axis) end = at;
        Buffer& buffer = out_.buffers[in.operands[0].buffer];
        buffer.last = std::max(buffer.last, end);
    }
}

}  // namespace orrery::lowering
