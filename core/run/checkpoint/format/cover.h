#pragma once
#include <span>
#include <vector>

#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/shares.h"

namespace orrery {

/// Checks the tensor blocks that several ranks hold, on the lowest rank that holds each: throws Damaged unless the
/// shards in the indexes of the ranks that hold a block cover each element of it exactly once. Reads only these indexes
/// from the store, no data. O(n log n) in the number of shards.
void check_shared(CheckpointStore& store, int64_t step, std::span<const StateValue> state,
                  const std::vector<Share>& shares, const Mesh& mesh, int64_t rank, AxisId stage_axis);

}  // namespace orrery
