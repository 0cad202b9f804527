#pragma once
#include <string>

#include "base/json_fwd.h"
#include "cli/checkpoints/checkpoints.h"
#include "cli/checkpoints/place.h"
#include "run/checkpoint/format/manifest.h"

namespace orrery {

// Each function runs one subcommand: it prints, and returns the exit code.
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
/// Prints JSON; bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& json);

}  // namespace orrery
