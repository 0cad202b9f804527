#pragma once
#include <string>
#include <vector>

#include "ir/op.h"
#include "orrery/plan.h"

namespace orrery::test {

/// The fragments that a rank's stream really runs, in order. Messages stand where their peer asks for them, and what
/// runs once a step stands between fragments: neither counts.
inline RankSchedule executed(const RankClass& c, const Program& program) {
    RankSchedule order;
    for (const Instruction& i : c.stream) {
        const bool message = i.op != none && is_transfer(op_def(program.op(i.op).kind));
        if (i.fragment.micro < 0 || message) continue;
        if (order.order.empty() || !(order.order.back() == i.fragment)) order.order.push_back(i.fragment);
    }
    return order;
}

/// "matmul_dw layers.0", of every op that runs in fragments of this kind for micro-batch 0. Not constants: with one
/// micro-batch these are made before.
inline std::vector<std::string> ops_in(Fragment::Kind kind, const RankClass& c, const Program& program) {
    std::vector<std::string> ops;
    for (const Instruction& i : c.stream)
        if (i.op != none && i.fragment.micro == 0 && i.fragment.kind == kind && program.op(i.op).kind != "full")
            ops.push_back(program.op(i.op).kind + " " + program.op(i.op).scope);
    return ops;
}

}  // namespace orrery::test
