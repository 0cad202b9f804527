#pragma once
#include <span>
#include <vector>

#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/shares.h"

namespace orrery {

/// Checks the blocks that this rank shares with others, where it is the lowest of the ranks that hold the block: throws
/// Damaged unless the shards in the indexes of these ranks cover each element exactly once. Reads these indexes from
/// the store, but no data and no other rank's index. O(n log n) in the number of shards.
void check_shared(CheckpointStore& store, int64_t step, std::span<const StateValue> state,
                  const std::vector<Share>& shares, const Mesh& mesh, int64_t rank, AxisId stage_axis);

}  // namespace orrery
