#pragma once
#include <vector>

#include "orrery/plan.h"

namespace orrery::lowering {

/// Where stages run and values are stored, by pipeline rank.
struct StagePlacement {
    AxisId axis = none;                    ///< mesh axis over which stages are spread; none: the program has one stage
    std::vector<int> rank_of;              ///< by stage: its pipeline rank
    std::vector<std::vector<int>> stages;  ///< by pipeline rank: its stages; the index is called chunk
    std::vector<int> at;                   ///< by value: its pipeline rank; none: every rank that needs it

    int ranks() const { return stages.empty() ? 1 : std::ssize(stages); }
};

/// Makes communication between stages explicit, so that later passes handle one rank at a time:
///   y1 = matmul(x, w) stage 0              y1 = matmul(x, w) stage 0
///   z1 = gelu(y1)     stage 1      ->      y2 = transfer(y1) stage 0 to 1
///                                          z1 = gelu(y2)     stage 1
/// A value is transferred once to each other rank that reads it, per micro-batch or per step. A scalar that every rank
/// needs, or a sum with parts on several ranks, becomes a `stage_sum` over the axis. A param or state is stored and
/// updated at the first stage that reads it. If several stages read it, each sums its gradient over micro-batches and
/// sends the sum there. An op of the update without a stage runs where its inputs are, or on every rank that needs it.
/// Ops keep their order. Throws Error if data would flow against the order of stages.
StagePlacement insert_transfers(Program& program, const Mesh& mesh, const Schedule& schedule);

}  // namespace orrery::lowering
