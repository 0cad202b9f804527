#pragma once
#include <cstdint>

#include "orrery/checkpoint.h"
#include "orrery/program.h"
#include "run/checkpoint/retain/retention.h"
#include "run/script_interface.h"

namespace orrery {

/// Bytes of the params and states of a program, each once: what a checkpoint of it takes, but for some KiB.
int64_t checkpoint_bytes(const Program& program);

/// Throws Error at `where` when the store's place has no room for the checkpoints of a training: two beside the one
/// that is being written, fewer where fewer are saved or lie there already (`there`). A store that does not tell its
/// free bytes has room.
void require_room(CheckpointStore& store, int64_t there, const Program& program, const TrainOptions& options,
                  const Origin& where);

/// Throws Error at `where` when checkpoints are to be kept by their evaluation, and none but the last of this training
/// would be evaluated.
void require_evaluated(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where);

/// Throws Error at `where` when steps are to be kept for good that are not among those which are saved.
void require_every_kept(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where);

}  // namespace orrery
