#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "run/control/job.h"
#include "run/settings.h"

namespace orrery {

/// What a task that a launcher started is for a run.
struct TaskRole {
    enum Kind : uint8_t {
        rank,   ///< one of the ranks
        agent,  ///< the one task of its node: starts the node's ranks, and restarts them if asked to
        alone,  ///< the only task of the job: starts all ranks on this host
    };
    Kind kind = rank;
    int64_t nodes = 1, spares = 0;  ///< of an agent's job
};

/// Returns the role of a task for a mesh of `ranks` ranks:
///
///     tasks                          --restarts, --spares, or --nodes below the tasks    role
///     one per node                   given                                               agent
///     as many as ranks               not given                                           rank
///     one, the mesh has more         not given                                           alone
///     one per node, the mesh has more    not given                                       agent
///
/// Of an agent's job, tasks beyond --nodes are spares. Any other number of tasks makes them ranks, which refuse it (all
/// together, so that one reports it). Throws Error if these flags do not fit the tasks. `mesh`: as text, "dp=4".
TaskRole role_of(const LaunchedTask& task, int64_t ranks, const std::string& mesh, const ScriptCommand& command);

/// The settings of a command, or why they cannot be read. Tasks then become ranks, which report it once for all; where
/// they cannot, since the flags or the environment are not those of ranks, each host does.
struct TaskSettings {
    std::optional<Settings> settings;
    std::optional<Error> problem;
    std::string command;  ///< script, configuration file and --set
};
TaskSettings settings_of(const ScriptCommand& command);

/// Returns role_of() a task for a command, after a check of its flags for that role. An error of all tasks of a host is
/// printed by one.
TaskRole checked_role(const ScriptCommand& command, const Job& job, const LaunchedTask& task, const TaskSettings& read);

/// Calls settle_meeting() for a task in the run's folder.
void settle_task(Job& job, const LaunchedTask& task, const TaskSettings& read);

/// Returns the command of an agent: `command` with node, place and secret of `job`, after settle_meeting().
ScriptCommand agent_of(ScriptCommand command, const TaskRole& role, const Job& job);

}  // namespace orrery
