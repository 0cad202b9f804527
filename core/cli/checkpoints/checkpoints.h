#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// Flags of `orrery checkpoints`.
struct CheckpointsCommand {
    std::string place;              ///< a run's folder, or a place in a store
    std::string store;              ///< the kind of store; "": from the run's configuration, else posix
    std::vector<std::string> sets;  ///< "store.NAME.key=value", for places that are not runs
    int64_t step = -1;
    std::string text;                                               ///< for pin: the reason
    std::optional<int64_t> keep, every_steps, hourly, daily, best;  ///< for prune: override the run's policy
    std::string to, to_store, mesh;                                 ///< for copy: target place, its store, its mesh
    bool dry_run = false, json = false;
};

struct Command;  // cli/flags.h

/// The command with its subcommands; their flags set `asked`. Exit codes: 0; 1 if verify finds damage.
Command checkpoints_command(CheckpointsCommand& asked);

}  // namespace orrery
