#pragma once
#include <cstdint>
#include <vector>

#include "ir/sent.h"
#include "orrery/plan.h"

namespace orrery {

/// The number of instructions at the start of a stream that are kernels of sent states, and of what such kernels make,
/// and collectives of what these make, up to the last collective among them. They write only scratch memory, so they
/// can run as soon as the states are set, long before the rest of the program. 0: the program waits for no message.
///
///     0 sum        w.sent [1, 64] -> %1 [64]    opening
///     1 all_reduce %1 -> %2 over site           opening
///     2 sum        b.sent [1, 8] -> %3 [8]      opening
///     3 all_reduce %3 -> %4 over site           opening: 4 instructions
///     4 sub        outer, %2 -> %5              waits for 1
int opening(const Program& program, const RankClass& rank_class);

/// By plan: where its scratch memory begins in the scratch arena of class `k` of ranks, in bytes; after the last plan
/// the size of the arena. Plans share its start, but one with an opening has a part of its own, since its messages are
/// in flight while other plans run.
std::vector<int64_t> scratch_places(const std::vector<const Plan*>& plans, size_t k);

}  // namespace orrery
