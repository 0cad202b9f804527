#pragma once
#include "orrery/plan.h"

namespace orrery {

/// Calls the machine for one instruction: first for its waits, then for itself.
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

/// Runs a stream: calls functions of the machine once per execution of an instruction, in order. Exceptions of the
/// machine end the walk. `index` is an index into the stream. The executor of a run is such a machine. Functions:
///   void begin_run(int64_t run)         called with 0 first, then before each further run of the repeated part; the
///                                       last run includes the instructions after that part
///   void wait(int index, int earlier)   `index` must not start before `earlier`, on another queue, is complete
///   void kernel(int index)
///   void copy(int index)
///   void collective(int index)          all_reduce, all_gather, reduce_scatter, all_to_all
///   void send(int index)
///   void receive(int index)
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
        throw Error("unsupported: repeated instructions of a plan; this reader of plans needs an unrolled plan",
                    Fault::failed);
    }
    while (index < end) visit(rank_class, index++, machine);
}

}  // namespace orrery
