#include "cli/launch.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/limits.h"
#include "base/processors.h"
#include "base/topology.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/supervise/rank_processes.h"
#include "cli/tell.h"
#include "orrery/error.h"
#include "plugin/loader.h"
#include "run/control/address.h"
#include "run/control/own_name.h"
#include "run/control/rendezvous.h"
#include "run/settings.h"

namespace orrery {
namespace {

HostPort address_of(const ScriptCommand& command) {
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
            fmt::format("--rendezvous {}: port 0 means any free port, which the other nodes cannot know\n"
                        "  choose a port that is free on node 0",
                        command.rendezvous));
    if (command.nodes > 1) refuse_loopback(place->host, "--rendezvous " + command.rendezvous);
    return *place;
}

std::string token_of(const ScriptCommand& command) {
    if (!command.token.empty()) return command.token;
    if (const auto shared = user_token()) return *shared;
    if (command.nodes > 1)
        throw Error(
            "several nodes need a shared secret: set ORRERY_TOKEN to the same 16 or more characters on each, or "
            "ORRERY_TOKEN_FILE to a file of mode 0600 that holds them");
    return make_secret();
}

}  // namespace

int launch(const LaunchSpec& spec) {
    constexpr int by_themselves_ms = 4000;  // grace period in ms, in which ranks learn that the job is over and end
    const SignalsHeld held;
    if (spec.taken_by) spec.taken_by->leave_them();
    Job shared = spec.job;
    if (spec.before) spec.before(shared);
    RankProcesses ranks(spec, shared, held);
    Loss lost;
    while (ranks.any()) {
        const int signal = held.take(std::chrono::milliseconds(200));
        if (signal > 0 && signal != SIGCHLD) ranks.asked(signal);
        ranks.look();
        ranks.end_stopped(spec.job.silence);
        if (!spec.lost || lost || !ranks.any()) continue;
        if ((lost = spec.lost())) ranks.end(by_themselves_ms);
    }
    const auto& ends = ranks.ends();
    if (std::any_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.late; }) && lost)
        std::fprintf(stderr, "orrery: the job ends: %s\n", lost.text.shown().c_str());
    return ranks.code();
}

namespace {

/// Returns the processors of each rank of this host; nothing if they are not pinned.
std::vector<std::vector<int>> places_of(Job job, const Settings& settings, Config& config, const Loader& loader) {
    if (!settings.pin_ranks || job.local_ranks < 2) return {};
    const int64_t threads = threads_of(settings, job);
    std::vector<std::string> devices;
    if (const auto address = loader.device_address(settings.device))
        for (job.local_rank = 0; job.local_rank < job.local_ranks; ++job.local_rank) {
            Config options = device_options(settings, config, job);
            devices.push_back(address(options));
        }
    return Topology(allowed_processors()).places(job.local_ranks, threads, devices);
}

}  // namespace

void place_ranks(LaunchSpec& spec, const Settings& settings, Config& config, const Loader& loader) {
    Job job = spec.job;
    job.assigned = job.ours = true;
    job.local_ranks = spec.local_ranks;
    spec.job.threads = threads_of(settings, job);
    spec.job.processors = usable_processors() / spec.local_ranks;
    spec.processors = places_of(job, settings, config, loader);
}

void take_place(Job& job, const Settings& settings, Config& config, const Loader& loader) {
    if (!job.assigned || job.ours || !job.counted || is_bound()) return;
    const auto places = places_of(job, settings, config, loader);
    if (places.empty()) return;
    const int64_t threads = threads_of(settings, job), processors = usable_processors() / job.local_ranks;
    if (!run_on(places[static_cast<size_t>(job.local_rank)])) return;  // a container may refuse
    job.threads = threads;  // of all processors of the host, which this rank does not see any more
    job.processors = processors;
}

void pin_rank(const Job& job, const TransportContract& contract) {
    if (!contract.pins_ranks || job.local_ranks < 2) return;
    const auto places = Topology(allowed_processors()).places(job.local_ranks, 1);
    if (places.empty()) return;
    run_on({places[static_cast<size_t>(job.local_rank)].front()});  // a container may refuse; timings are less precise
}

void check_spares(const ScriptCommand& command, const char* remedy) {
    if (command.spares == 0 || (command.nodes > 1 && command.restarts > 0)) return;
    throw Error(
        fmt::format("--spares {}: a spare replaces a lost node when the job is restarted, but this job has {}\n"
                    "  {}, or leave --spares out",
                    command.spares, command.nodes < 2 ? "one node" : "no --restarts", remedy));
}

void check_nodes(const ScriptCommand& command) {
    if (command.nodes < 1) throw Error(fmt::format("--nodes {}: expected 1 or more", command.nodes));
    check_spares(command, "give all launchers --nodes of 2 or more and --restarts");
    const int64_t all = command.nodes + command.spares;
    if (command.node_rank < 0 || command.node_rank >= all)
        throw Error(fmt::format("--node-rank {} of --nodes {}{}: expected 0 to {}", command.node_rank, command.nodes,
                                command.spares > 0 ? fmt::format(" and --spares {}", command.spares) : "", all - 1));
}

void refuse_launch_flags(const ScriptCommand& command, const Job& job) {
    const std::string& launcher = job.launcher;
    if (command.restarts > 0)
        throw Error(fmt::format(
            "--restarts {}: {} has started the ranks; if both restart the job, they stop each other's ranks\n"
            "  leave --restarts out{}, or start the command without {}",
            command.restarts, launcher, job.restarts ? " and use the restarts of " + launcher : "", launcher));
    const char* flag = command.fresh                 ? "--fresh"
                       : command.nodes != 1          ? "--nodes"
                       : !command.rendezvous.empty() ? "--rendezvous"
                                                     : nullptr;
    if (flag)
        throw Error(fmt::format("{}: {} has started the ranks and sets their rendezvous\n  leave {} out{}", flag,
                                launcher, flag,
                                command.fresh ? "; move the run's folder aside before the job starts" : ""));
}

void await_name(const Job& job, bool moves) {
    constexpr std::chrono::seconds limit(60);  // twice as long as name servers of clusters cache an answer
    if (!job.serves || job.ranks < 2) return;
    await_own_name(job.host, moves, limit, [&] {  // if it does not, the rendezvous throws
        std::fprintf(stderr, "orrery: %s does not stand for an address of this host: waiting for it, up to %lld s\n",
                     job.host.c_str(), static_cast<long long>(limit.count()));
    });
}

LaunchSpec over_hosts(const ScriptCommand& command, int64_t ranks) {
    if (ranks % command.nodes != 0)
        throw Error(fmt::format("{} ranks are not divisible by --nodes {}; change one of them", ranks, command.nodes));
    const HostPort address = address_of(command);
    LaunchSpec spec;
    spec.arguments = command.arguments;
    spec.job.id = job_name(command);
    spec.job.token = token_of(command);
    spec.job.ranks = ranks;
    spec.job.nonce = make_nonce();
    spec.job.host = address.host;
    spec.job.port = address.port;
    spec.local_ranks = ranks / command.nodes;
    spec.first_rank = command.node_rank * spec.local_ranks;
    Job first = spec.job;
    first.serves = command.nodes > 1 && command.node_rank == 0;
    await_name(first, false);
    return spec;
}

namespace {

std::unique_ptr<Member> join_as_launcher(const LaunchSpec& spec, int64_t node) {
    JoinOptions options = place_of(spec.job);
    options.rank = -1 - node;
    options.world = spec.job.ranks;
    options.per_host = spec.local_ranks;
    options.timeout = spec.join_timeout;
    const SignalsHeld held;  // the thread that serves the connection must block signals, too
    return spec.meeting->join(options);
}

}  // namespace

int launch_meeting(LaunchSpec spec, int64_t node_rank, const std::function<void()>& claim) {
    std::unique_ptr<RendezvousService> server;
    std::unique_ptr<Member> member;
    if (node_rank != 0) {
        member = join_as_launcher(spec, node_rank);
        spec.job.run = member->run();
        if (const Loss loss = member->loss()) return end_by(loss);
    }
    spec.before = [&](Job& shared) {
        if (node_rank != 0) return;
        shared.run = make_nonce();
        server = serve(*spec.meeting, options_of(shared, spec.local_ranks));
        shared.port = server->port();
        claim();
    };
    spec.gone = [&](const Loss& how) {
        if (server) return server->gone(how);
        member->gone(how);
        return true;
    };
    spec.joined = [&](int64_t rank) { return !server || server->joined(rank); };
    if (spec.local_ranks < spec.job.ranks) spec.lost = [&] { return server ? server->loss() : member->loss(); };
    try {
        const int code = launch(spec);
        const Loss loss = server ? server->loss() : member->loss();
        if (member) member->leave();
        return code != 0 && loss.cause == Cause::mistake ? loss.code : code;
    } catch (const std::exception& error) {
        if (server) tell_end(*server, explain(error), fault_of(error));
        throw;
    }
}

int measuring_rank(const Job& job, RendezvousBackend& meeting, const std::function<int(Rendezvous&)>& measure) {
    std::unique_ptr<RendezvousService> server;  // outlives this rank's connection, since other ranks may still need it
    if (job.serves) server = serve(meeting, job);
    const auto rendezvous = meeting.join(place_of(job));
    try {
        const int code = measure(*rendezvous);
        rendezvous->leave();
        return code;
    } catch (const std::exception& error) {
        rendezvous->fail(loss_of(fault_of(error), explain(error)));
        throw;
    }
}

void launch_threads(const std::string& id, int64_t ranks, RendezvousBackend& meeting, std::chrono::milliseconds silence,
                    const std::function<void(const Job&)>& rank) {
    ServeOptions options;
    options.silence = silence;
    options.world = ranks;
    options.token = {make_secret(), id, 0};
    const auto server = serve(meeting, options);
    std::mutex order;
    std::exception_ptr first;
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < ranks; ++i)
        threads.emplace_back([&, i] {
            Job job;
            job.id = options.token.job;
            job.token = options.token.secret;
            job.nonce = make_nonce();
            job.rank = job.local_rank = i;
            job.ranks = job.local_ranks = ranks;
            job.port = server->port();
            try {
                rank(job);
            } catch (...) {
                const std::lock_guard lock(order);
                if (!first) first = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

void watch_lifeline() {
    const char* text = std::getenv("ORRERY_LIFELINE");
    if (!text) return;
    const int fd = std::atoi(text);
    ::unsetenv("ORRERY_LIFELINE");
    // PR_SET_PDEATHSIG is not used, since it fires when the *thread* that forked a rank ends.
    std::thread([fd] {
        pollfd watched{fd, POLLIN, 0};
        while (::poll(&watched, 1, -1) < 0 && errno == EINTR) {
        }
        std::fprintf(stderr, "orrery: this rank exits because its launcher has exited\n");
        ::_exit(1);
    }).detach();
}

}  // namespace orrery
