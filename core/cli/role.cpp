#include "cli/role.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/launch.h"
#include "cli/script_runner.h"
#include "orrery/error.h"
#include "run/control/address.h"

namespace orrery {
namespace {

/// Whether each task has its node for itself. A launcher that counts neither nodes nor the tasks of a node starts one
/// task in each pod.
bool one_per_node(const LaunchedRank& task) {
    if (task.ranks == 1) return true;
    if (task.nodes > 0) return task.nodes == task.ranks;
    return task.counted ? task.local_ranks == 1 : task.local_rank < 0;
}

std::string started(const LaunchedTask& task) {
    const LaunchedRank& place = task.place;
    const bool several = place.counted && place.local_ranks > 1;
    return fmt::format("{} started {}{}", task.launcher, plural(place.ranks, "task"),
                       several ? fmt::format(", {} of them on this host", place.local_ranks) : "");
}

void refuse_place(const LaunchedTask& task, const ScriptCommand& command) {
    const char* flag = !command.rendezvous.empty() ? "--rendezvous" : command.node_rank != 0 ? "--node-rank" : nullptr;
    if (flag)
        throw Error(fmt::format("{}: {}, and knows their nodes and where they meet\n  leave {} out", flag,
                                started(task), flag));
}

TaskRole agent(const LaunchedTask& task, int64_t ranks, const std::string& mesh, const ScriptCommand& command) {
    const int64_t tasks = task.place.ranks;
    TaskRole role{TaskRole::agent, command.nodes > 1 ? command.nodes : tasks - command.spares, command.spares};
    if (command.nodes > 1 && command.spares == 0) role.spares = tasks - command.nodes;
    if (role.nodes < 1)
        throw Error(
            fmt::format("{}, but --spares {} needs {} or more: one node and the spares\n  start one task on each "
                        "node, or lower --spares",
                        started(task), command.spares, command.spares + 1));
    if (role.spares < 0 || role.nodes + role.spares != tasks)
        throw Error(
            fmt::format("{}, but --nodes {} and --spares {} are {} nodes\n  start one task on each node, or "
                        "change the flags",
                        started(task), command.nodes, command.spares, command.nodes + command.spares));
    if (ranks % role.nodes != 0)
        throw Error(
            fmt::format("mesh {} has {}, which are not divisible by {}: {}, of which {}\n  change [mesh], the "
                        "number of tasks, or --nodes",
                        mesh, plural(ranks, "rank"), plural(role.nodes, "node"), started(task),
                        role.spares > 0 ? fmt::format("{} are spares", role.spares) : "none is a spare"));
    return role;
}

}  // namespace

TaskRole role_of(const LaunchedTask& task, int64_t ranks, const std::string& mesh, const ScriptCommand& command) {
    refuse_place(task, command);
    const int64_t tasks = task.place.ranks;
    const bool fewer_nodes = command.nodes > 1 && command.nodes != tasks && one_per_node(task.place);
    const std::string asked = command.restarts > 0 ? fmt::format("--restarts {}", command.restarts)
                              : command.spares > 0 ? fmt::format("--spares {}", command.spares)
                              : fewer_nodes        ? fmt::format("--nodes {}", command.nodes)
                                                   : "";
    if (!asked.empty() && !one_per_node(task.place))
        throw Error(
            fmt::format("{}: {}, but only a task that is alone on its node can restart the node's ranks\n  start one "
                        "task on each node, or leave {} out",
                        asked, started(task), asked.substr(0, asked.find(' '))));
    if (!asked.empty()) return agent(task, ranks, mesh, command);
    if (tasks == ranks) return {};
    if (tasks == 1) return {TaskRole::alone};
    if (one_per_node(task.place) && ranks > tasks) return agent(task, ranks, mesh, command);
    return {};  // a rank refuses any other number, once for all ranks
}

TaskSettings settings_of(const ScriptCommand& command) {
    try {
        Config config = config_of(command);
        return {read_settings(config), std::nullopt,
                command.script + "\n" + command.config + "\n" + join(command.sets, "\n")};
    } catch (const Error& error) {
        return {std::nullopt, error, ""};
    }
}

TaskRole checked_role(const ScriptCommand& command, const Job& job, const LaunchedTask& task,
                      const TaskSettings& read) {
    try {
        const auto& settings = read.settings;
        const TaskRole role =
            settings ? role_of(task, settings->mesh.ranks(), settings->mesh.text(), command) : TaskRole{};
        if (role.kind != TaskRole::rank) return role;
        require_local_rank(job);
        refuse_launch_flags(command, job);
        return role;
    } catch (const Error& found) {
        const Error error = read.problem.value_or(found);
        if (job.local_rank > 0) throw SaidElsewhere(error.what(), error.fault());
        throw error;
    }
}

void settle_task(Job& job, const LaunchedTask& task, const TaskSettings& read) {
    std::optional<MeetingFolder> folder;
    if (const auto& settings = read.settings)
        folder = {settings->folder.empty() ? "runs" : settings->folder, settings->join_timeout, read.command};
    try {
        settle_meeting(job, task, folder);
    } catch (const SaidElsewhere&) {
        throw;
    } catch (const Error& found) {
        throw read.problem.value_or(found);
    }
}

ScriptCommand agent_of(ScriptCommand command, const TaskRole& role, const Job& job) {
    command.nodes = role.nodes;
    command.spares = role.spares;
    command.node_rank = job.rank;
    if (job.ranks == 1) return command;
    command.rendezvous = place_text(job.host, job.port);
    command.job = job.id;
    command.token = job.token;
    return command;
}

}  // namespace orrery
