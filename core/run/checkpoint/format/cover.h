#pragma once
#include <span>
#include <vector>

#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/shares.h"

namespace orrery {

/// Of the blocks that several ranks hold, and this one as the first of them: throws Damaged unless what these ranks
/// say that they have written for the step covers each element once. Reads their indexes, which they themselves have
/// compared with what they wrote; not the root, which names those of all ranks. O(n log n) in their shards.
void check_shared(CheckpointStore& store, int64_t step, std::span<const StateValue> state,
                  const std::vector<Share>& shares, const Mesh& mesh, int64_t rank, AxisId stage_axis);

}  // namespace orrery
