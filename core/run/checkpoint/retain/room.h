#pragma once
#include <cstdint>

#include "orrery/checkpoint.h"
#include "orrery/program.h"
#include "run/checkpoint/retain/retention.h"
#include "run/script_interface.h"

namespace orrery {

/// Bytes of the params and states of a program, each counted once: the size of a checkpoint without some KiB of
/// headers.
int64_t checkpoint_bytes(const Program& program);

/// Throws Error at `where` if the store lacks space for three checkpoints: two that are retained and one that is being
/// written. Needs less space if checkpoints exist (`there`: their number) or if the training saves fewer than three.
/// Does nothing if the store does not know its free bytes.
void require_room(CheckpointStore& store, int64_t there, const Program& program, const TrainOptions& options,
                  const Origin& where);

/// Throws Error at `where` if the policy has keep_best, but no step before the last is both saved and evaluated.
void require_evaluated(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where);

/// Throws Error at `where` if keep_every_steps is not a multiple of the interval between saves.
void require_every_kept(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where);

}  // namespace orrery
