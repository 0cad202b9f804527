#pragma once
#include <string>

#include "base/json_fwd.h"
#include "cli/checkpoints/checkpoints.h"
#include "cli/checkpoints/place.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {

int list_checkpoints(StorePlace& place, const CheckpointsCommand& command);
int show_checkpoint(StorePlace& place, const CheckpointsCommand& command);
int verify_checkpoints(StorePlace& place, const CheckpointsCommand& command);
int pin_checkpoint(StorePlace& place, const CheckpointsCommand& command);
int unpin_checkpoint(StorePlace& place, const CheckpointsCommand& command);
int unmark_checkpoint(StorePlace& place, const CheckpointsCommand& command);
int prune_checkpoints(StorePlace& place, const CheckpointsCommand& command);
int copy_checkpoint(StorePlace& place, const CheckpointsCommand& command);

/// Returns {"place", "store"}, with which the JSON of every subcommand begins.
Json about(StorePlace& place);
void print_json(const Json& json);

}  // namespace orrery
