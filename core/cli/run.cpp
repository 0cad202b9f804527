#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/limits.h"
#include "base/processors.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/script_host.h"
#include "cli/signals.h"
#include "cli/tell.h"
#include "run/address.h"
#include "run/rendezvous.h"
#include "run/stop_request.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Moves a run's folder aside: runs/gpt -> runs/gpt.1, the first number that is free. Nobody may be using it.
void move_aside(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    std::error_code problem;
    if (!fs::exists(folder, problem) || fs::is_empty(folder, problem)) return;
    if (!fs::exists(folder + "/config.toml"))
        throw Error(
            fmt::format("--fresh: {} is no run's folder: it has no config.toml\n  choose another run.folder, or move "
                        "it aside yourself",
                        folder));
    const FolderLock lock(folder);
    int n = 1;
    while (fs::exists(fmt::format("{}.{}", folder, n), problem)) ++n;
    fs::rename(folder, fmt::format("{}.{}", folder, n), problem);
    if (problem) throw Error(fmt::format("--fresh: cannot move {} to {}.{}: {}", folder, folder, n, problem.message()));
    std::printf("%s moved to %s.%d\n", folder.c_str(), folder.c_str(), n);
}

Place address_of(const ScriptCommand& command) {
    if (command.rendezvous.empty()) {
        if (command.nodes > 1)
            throw Error(fmt::format(
                "--nodes {} needs --rendezvous HOST:PORT, an address of node 0 that all nodes reach", command.nodes));
        return {"127.0.0.1", 0};
    }
    const auto place = parse_place(command.rendezvous);
    if (!place)
        throw Error(fmt::format("--rendezvous {}: expected HOST:PORT, as n1:29500, 10.0.0.1:29500 or [fd00::1]:29500",
                                command.rendezvous));
    if (command.nodes > 1 && place->port == 0)
        throw Error(
            fmt::format("--rendezvous {}: port 0 is any free one, which the other nodes cannot know\n"
                        "  name a port that is free on node 0",
                        command.rendezvous));
    if (command.nodes > 1) refuse_loopback(place->host, "--rendezvous " + command.rendezvous);
    return *place;
}

std::string token_of(const ScriptCommand& command) {
    if (const auto shared = user_token()) return *shared;
    if (command.nodes > 1)
        throw Error("several nodes need one secret: set ORRERY_TOKEN to the same 16 or more characters on each");
    return make_secret();
}

/// A script may catch what ended its training; a signal to this process stays one.
void refuse_stopped() {
    if (stop_signal() != 0)
        throw Error(fmt::format("stopped by signal {}: start again to go on", stop_signal()), Fault::requeue);
}

/// Ranks as threads of this process, for transports that need it: same scripts, same plans, one address space.
int run_as_threads(const ScriptCommand& command, int64_t ranks) {
    RendezvousServer::Options options;
    options.world = ranks;
    options.token = {make_secret(), job_name(command), 0};
    RendezvousServer server(options);
    std::mutex order;
    std::exception_ptr first;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            Job job;
            job.id = options.token.job;
            job.token = options.token.secret;
            job.rank = job.local_rank = rank;
            job.ranks = job.local_ranks = ranks;
            job.port = server.port();
            try {
                ScriptHost(command, Mode::run, job).run_script();
            } catch (...) {
                ends_by_itself();
                const std::lock_guard lock(order);
                if (!first) first = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
    refuse_stopped();
    return 0;
}

int start_ranks(const ScriptCommand& command, const Settings& settings, const std::function<void()>& claim,
                SignalTaker& signals) {
    const int64_t ranks = settings.mesh.ranks();
    need_descriptors(settings.mesh);
    LaunchSpec spec = over_hosts(command, ranks);
    Job local;
    local.local_ranks = spec.local_ranks;
    spec.job.threads = threads_of(settings, local);
    spec.job.processors = static_cast<int64_t>(allowed_processors().size()) / spec.local_ranks;
    if (settings.pin_ranks) spec.processors = shares(allowed_processors(), spec.local_ranks, spec.job.threads);
    spec.taken_by = &signals;
    return launch_meeting(std::move(spec), command.node_rank, claim);
}

void check_nodes(const ScriptCommand& command) {
    if (command.nodes < 1) throw Error(fmt::format("--nodes {}: expected 1 or more", command.nodes));
    if (command.node_rank < 0 || command.node_rank >= command.nodes)
        throw Error(fmt::format("--node-rank {} of --nodes {}: expected 0 to {}", command.node_rank, command.nodes,
                                command.nodes - 1));
}

/// One rank that a launcher has started.
int run_rank(const ScriptCommand& command, const Job& job) {
    std::optional<ScriptHost> host;
    const auto end = [&](const std::string& what, Fault fault) {
        Job here = job;
        here.session = host ? host->trained() : 0;
        return end_rank(here, what, exit_code(fault), host ? host->server() : nullptr);
    };
    try {
        host.emplace(command, Mode::run, job);
        host->run_script();
        refuse_stopped();
        return 0;
    } catch (const Error& error) {
        ends_by_itself();
        const bool told = error.fault() == Fault::requeue || error.fault() == Fault::peer;
        if (told || (host && host->met())) throw;  // the session has told the others, or nobody was there
        return end(error.what(), error.fault());
    } catch (const std::exception& error) {
        ends_by_itself();
        if (host && host->met()) throw;
        return end(explain(error), Fault::failed);
    }
}

/// What can be wrong with script, configuration, plugins, data and plan shows here, before a rank starts: all but what
/// only several GPUs' own ranks can tell.
int launch_ranks(const ScriptCommand& command, const Job& job, SignalTaker& signals) {
    ScriptHost checked(command, Mode::launch, job);
    checked.run_script();
    const auto claim = [&] {
        if (!checked.trains()) return;
        if (command.fresh) move_aside(checked.folder());
        checked.lock_folder();  // is it free, and can it be written? Rank 0 will lock it for the run
    };
    const int64_t ranks = checked.settings().mesh.ranks();
    const bool threads = checked.ranks_are_threads();
    if (const std::string left_out = nodes_left_out(); ranks > 1 && command.nodes == 1 && !left_out.empty())
        std::fprintf(stderr, "orrery: %s\n", left_out.c_str());
    if (ranks > 1 && !threads) return start_ranks(command, checked.settings(), claim, signals);
    claim();
    if (ranks > 1) return run_as_threads(command, ranks);
    ScriptHost(command, Mode::run, job).run_script();
    refuse_stopped();
    return 0;
}

}  // namespace

void refuse_launch_flags(const ScriptCommand& command, const std::string& launcher) {
    const char* flag = command.fresh                 ? "--fresh"
                       : command.nodes != 1          ? "--nodes"
                       : !command.rendezvous.empty() ? "--rendezvous"
                                                     : nullptr;
    if (flag)
        throw Error(fmt::format("{}: {} has started the ranks and says where they meet\n  leave {} out{}", flag,
                                launcher, flag,
                                command.fresh ? "; move the run's folder aside before the job starts" : ""));
}

LaunchSpec over_hosts(const ScriptCommand& command, int64_t ranks) {
    check_nodes(command);
    if (ranks % command.nodes != 0)
        throw Error(fmt::format("{} ranks do not divide over --nodes {}", ranks, command.nodes));
    const Place address = address_of(command);
    LaunchSpec spec;
    spec.arguments = command.arguments;
    spec.job.id = job_name(command);
    spec.job.token = token_of(command);
    spec.job.ranks = ranks;
    spec.job.host = address.host;
    spec.job.port = address.port;
    spec.local_ranks = ranks / command.nodes;
    spec.first_rank = command.node_rank * spec.local_ranks;
    return spec;
}

int launch_meeting(LaunchSpec spec, int64_t node_rank, const std::function<void()>& claim) {
    std::unique_ptr<RendezvousServer> server;
    spec.before = [&](Job& shared) {
        if (node_rank != 0) return;
        server = std::make_unique<RendezvousServer>(options_of(shared, spec.local_ranks));
        shared.port = server->port();
        claim();
    };
    spec.gone = [&](int64_t rank, const std::string& how) {
        if (server) return server->gone(rank, how);
        tell_gone(spec.job, node_rank, rank, how);
        return true;
    };
    spec.joined = [&](int64_t rank) { return !server || server->joined(rank); };
    try {
        return launch(spec);
    } catch (const std::exception& error) {
        if (server) tell_end(*server, explain(error));
        throw;
    }
}

int run_command(const ScriptCommand& command) {
    const Job job = job_from_environment();
    SignalTaker signals(job.ranks > 1 ? fmt::format("[rank {}] ", job.rank) : "");
    if (command.script_help) {
        ScriptHost(command, Mode::help, job).run_script();
        return 0;
    }
    check_nodes(command);
    if (job.assigned) {
        if (job.launcher != "orrery") refuse_launch_flags(command, job.launcher);
        return run_rank(command, job);
    }
    if (command.nodes == 1) return launch_ranks(command, job, signals);
    try {
        return launch_ranks(command, job, signals);
    } catch (const Error& error) {
        return end_launcher(command, error.what(), exit_code(error.fault()));
    } catch (const std::exception& error) {
        return end_launcher(command, explain(error), exit_code(Fault::failed));
    }
}

}  // namespace orrery
