#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// What `orrery checkpoints` is asked.
struct CheckpointsCommand {
    std::string what;               ///< "list", "show", ...
    std::string place;              ///< a run's folder, or a place of a store
    std::string store;              ///< the kind of that place; "": as the run's configuration says, else posix
    std::vector<std::string> sets;  ///< "store.NAME.key=value", for places
    int64_t step = -1;
    std::string text;                                               ///< pin: why
    std::optional<int64_t> keep, every_steps, hourly, daily, best;  ///< prune: over the run's
    std::string to, to_store, mesh;                                 ///< copy
    bool dry_run = false, json = false;
};

void add_checkpoints_flags(CLI::App& app, CheckpointsCommand& command);
/// Returns the exit code: 0; 1 where verify finds damage.
int checkpoints_command(const CheckpointsCommand& command);

}  // namespace orrery
