#pragma once
#include "orrery/plan.h"

namespace orrery {

/// Gives one instruction to a machine, its waits first; see `walk`.
template <class Machine>
void visit(const RankClass& rank_class, int index, Machine& machine) {
    const Instruction& instruction = rank_class.stream[index];
    for (int earlier : instruction.waits) machine.wait(index, earlier);
    switch (instruction.opcode) {
        case Opcode::kernel: machine.kernel(index); break;
        case Opcode::copy: machine.copy(index); break;
        case Opcode::all_reduce:
        case Opcode::all_gather:
        case Opcode::reduce_scatter:
        case Opcode::all_to_all: machine.collective(index); break;
        case Opcode::send: machine.send(index); break;
        case Opcode::receive: machine.receive(index); break;
    }
}

/// The one loop over a stream. The executor gives it a device and communicators.
/// `index` is the instruction's place in the stream; of a repeated stretch it comes once in each run. A Machine has
///   void begin_run(int64_t run)         of a plan that repeats a stretch: 0 before it, then each run; the last one's
///                                       number holds behind it, too
///   void wait(int index, int earlier)   what instruction `earlier` (of another queue) does must be done before `index`
///   void kernel(int index)
///   void copy(int index)
///   void collective(int index)          all_reduce, all_gather, reduce_scatter, all_to_all
///   void send(int index)
///   void receive(int index)
/// Whatever it throws ends the walk.
template <class Machine>
void walk(const RankClass& rank_class, Machine& machine) {
    const Repeat& repeat = rank_class.repeat;
    const int end = rank_class.stream.size();
    int index = 0;
    if constexpr (requires { machine.begin_run(int64_t{0}); }) {
        machine.begin_run(0);
        while (index < repeat.end) visit(rank_class, index++, machine);
        for (int64_t run = 1; run < repeat.times; ++run) {
            machine.begin_run(run);
            for (index = repeat.begin; index < repeat.end; ++index) visit(rank_class, index, machine);
        }
    } else if (repeat.times > 1) {
        throw Error("this machine runs no stretch of a plan more than once; it needs an unrolled one", Fault::failed);
    }
    while (index < end) visit(rank_class, index++, machine);
}

}  // namespace orrery
