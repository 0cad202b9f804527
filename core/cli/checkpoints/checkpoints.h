#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// What `orrery checkpoints` is asked.
struct CheckpointsCommand {
    std::string place;              ///< a run's folder, or a place of a store
    std::string store;              ///< the kind of that place; "": as the run's configuration says, else posix
    std::vector<std::string> sets;  ///< "store.NAME.key=value", for places
    int64_t step = -1;
    std::string text;                                               ///< pin: why
    std::optional<int64_t> keep, every_steps, hourly, daily, best;  ///< prune: over the run's
    std::string to, to_store, mesh;                                 ///< copy
    bool dry_run = false, json = false;
};

struct Command;  // cli/flags.h

/// The command with its subcommands, whose flags set `asked`. Their exit code: 0; 1 where verify finds damage.
Command checkpoints_command(CheckpointsCommand& asked);

}  // namespace orrery
