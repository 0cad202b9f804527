#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

struct CheckpointsCommand {
    std::string place;              ///< a run's folder, or the path of checkpoints in a store
    std::string store;              ///< kind of store; "": as the run's configuration says, else posix
    std::vector<std::string> sets;  ///< "store.NAME.key=value", for a `place` that is not a run's
    int64_t step = -1;
    std::string text;                                               ///< pin: why the checkpoint is pinned
    std::optional<int64_t> keep, every_steps, hourly, daily, best;  ///< prune: override the retention policy
    std::string to, to_store, mesh;  ///< copy: the destination, its kind of store, its mesh
    bool dry_run = false, json = false;
};

struct Command;  // defined in cli/flags.h

/// Returns the command with its subcommands; their flags set `asked`. Exit codes: 0; 1 if verify finds damage.
Command checkpoints_command(CheckpointsCommand& asked);

}  // namespace orrery
