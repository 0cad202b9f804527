#pragma once
#include <vector>

#include "orrery/plan.h"

namespace orrery::lowering {

/// Where on the pipeline a program's ops run and its values live.
struct StagePlacement {
    AxisId axis = none;                    ///< carries the stages; none: the program has one stage
    std::vector<int> rank_of;              ///< by stage: its rank on the pipeline
    std::vector<std::vector<int>> stages;  ///< by pipeline rank: its stages, by chunk
    std::vector<int> at;                   ///< by value: the pipeline rank that has it; none: every rank that needs it

    int ranks() const { return stages.empty() ? 1 : std::ssize(stages); }
};

/// Makes the ways between stages explicit, so that what follows looks at one rank at a time:
///   transfer   a value that another rank's stage reads is sent there once (in each micro-batch, or once a step)
///   stage_sum  a scalar that every rank needs, or a sum whose parts lie on several ranks, is added over the axis
/// A param or state rests at the first stage that reads it; its update runs there. The gradient of a param that
/// several stages read is summed over micro-batches on each and then sent home. Ops of the update without a stage of
/// their own run where their inputs are, or (`stage` none) on every rank that needs them. Ops stay in program order.
/// Throws Error where data would flow against the order of stages.
StagePlacement insert_transfers(Program& program, const Mesh& mesh, const Schedule& schedule);

}  // namespace orrery::lowering
