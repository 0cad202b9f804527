#include "cli/launch.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include "base/limits.h"
#include "base/processors.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/tell.h"
#include "orrery/error.h"
#include "run/control/address.h"
#include "run/control/rendezvous.h"

extern char** environ;

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
    pid_t pid = -1;
    int64_t rank = 0;
    bool running = false;
};

/// Everything a child needs is made before fork: only exec follows in the child. What `blocked` holds comes to it when
/// it asks for it: no signal is too early.
pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
            const sigset_t& blocked, int close_fd) {
    std::vector<char*> argv, envp;
    for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    // Of a name that is there twice, the rank would read the first: the user's ORRERY_TOKEN instead of the job's.
    const auto replaced = [&](std::string_view had) {
        const std::string_view name = had.substr(0, had.find('=') + 1);
        return std::any_of(variables.begin(), variables.end(), [&](const auto& v) { return v.starts_with(name); });
    };
    for (char** e = environ; *e; ++e)
        if (!replaced(*e)) envp.push_back(*e);
    for (const auto& v : variables) envp.push_back(const_cast<char*>(v.c_str()));
    envp.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) throw Error(fmt::format("cannot start a rank: fork: {}", std::strerror(errno)), Fault::failed);
    if (pid == 0) {
        ::close(close_fd);  // the write end of the lifeline stays with the launcher alone
        ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
        ::execve("/proc/self/exe", argv.data(), envp.data());
        ::_exit(127);
    }
    return pid;
}

void pin(const std::vector<int>& processors) {
    if (!run_on(processors))
        std::fprintf(stderr, "orrery: cannot pin the ranks: %s; set run.pin_ranks = false\n", std::strerror(errno));
}

/// Which exit code is the job's: a failure before a stop, SIGINT's before the other signals'.
int weight(int code) { return code == 0 ? 0 : code == 75 ? 1 : code == 128 + SIGINT ? 2 : 3; }

struct Watch {
    std::vector<Child> children;
    std::optional<Clock::time_point> deadline;
    int code = 0;
    bool interrupted = false, stopping = false;
    std::optional<int> at_once = {};  ///< the exit code, whatever the ranks' are
    decltype(LaunchSpec::gone) gone;
    decltype(LaunchSpec::joined) joined;

    void forward(int signal) const {
        for (const Child& child : children)
            if (child.running) ::kill(child.pid, signal);
    }

    bool any() const {
        for (const Child& child : children)
            if (child.running) return true;
        return false;
    }

    void ended(Child& child, int status, int grace_ms) {
        child.running = false;
        const bool first = !deadline;
        const int own = WIFSIGNALED(status) ? 1 : WEXITSTATUS(status);
        if (weight(own) == 3 && first)  // before others are told, which may take long
            deadline = Clock::now() + std::chrono::milliseconds(grace_ms);
        if (WIFSIGNALED(status)) {
            const std::string how = fmt::format("(pid {}) was killed by signal {} ({})", child.pid, WTERMSIG(status),
                                                ::strsignal(WTERMSIG(status)));
            if (first && !at_once)
                std::fprintf(stderr, "orrery: rank %lld %s%s\n", static_cast<long long>(child.rank), how.c_str(),
                             tell_gone(child, how) ? "" : " before it joined");
        } else if (first && weight(own) == 3) {
            tell_gone(child, fmt::format("(pid {}) ended with exit code {}", child.pid, own));
        }
        if (own == 0) return;
        if (weight(own) > weight(code)) code = own;
        if (weight(own) == 3 || stopping) return;
        stopping = true;  // a scheduler may signal one rank alone, before it has met the others
        forward(SIGTERM);
    }

    void asked(int signal, const LaunchSpec& spec) {
        const bool again = signal == SIGINT && interrupted;
        interrupted = interrupted || signal == SIGINT;
        stopping = true;
        if (again || !spec.taken_by) {
            at_once = 128 + signal;
            deadline = Clock::now() + std::chrono::milliseconds(again ? 0 : spec.grace_ms);
        }
        forward(!spec.taken_by || signal == SIGUSR1 ? signal : SIGTERM);
    }

    bool tell_gone(const Child& child, const std::string& how) const { return !gone || gone(child.rank, how); }

    void reap(int grace_ms) {
        int status = 0;
        for (Child& child : children)
            if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid) ended(child, status, grace_ms);
    }

    void kill_late() {
        if (!deadline || Clock::now() < *deadline || !any()) return;
        for (const Child& child : children)
            if (child.running && !at_once)
                std::fprintf(stderr, "orrery: rank %lld (pid %d) %s\n", static_cast<long long>(child.rank), child.pid,
                             joined && !joined(child.rank) ? "had not joined yet and is ended, too"
                                                           : "did not end in time and is killed");
        forward(SIGKILL);
        deadline = Clock::now() + std::chrono::hours(1);
    }
};

/// Signals that wait to be taken by sigtimedwait, in this thread and in those that it makes.
struct SignalsHeld {
    sigset_t mask = stop_signals(), before;

    SignalsHeld() {
        ::sigaddset(&mask, SIGCHLD);
        ::pthread_sigmask(SIG_BLOCK, &mask, &before);
    }
    ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    SignalsHeld(const SignalsHeld&) = delete;
};

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

}  // namespace

int launch(const LaunchSpec& spec) {
    const SignalsHeld held;
    if (spec.taken_by) spec.taken_by->leave_them();
    Job shared = spec.job;
    if (spec.before) spec.before(shared);
    int lifeline[2];
    if (::pipe(lifeline) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)), Fault::failed);

    const std::vector<int> allowed = allowed_processors();
    Watch watch;
    watch.gone = spec.gone;
    watch.joined = spec.joined;
    for (int64_t i = 0; i < spec.local_ranks; ++i) {
        Job job = shared;
        job.rank = spec.first_rank + i;
        job.local_rank = i;
        job.local_ranks = spec.local_ranks;
        auto variables = environment_of(job);
        variables.push_back(fmt::format("ORRERY_LIFELINE={}", lifeline[0]));
        if (!spec.processors.empty()) pin(spec.processors[static_cast<size_t>(i)]);  // inherited by the child
        watch.children.push_back({spawn(spec.arguments, variables, held.before, lifeline[1]), job.rank, true});
    }
    if (!spec.processors.empty()) pin(allowed);
    ::close(lifeline[0]);

    while (watch.any()) {
        const timespec tick{0, 200'000'000};
        const int signal = ::sigtimedwait(&held.mask, nullptr, &tick);
        if (signal > 0 && signal != SIGCHLD) watch.asked(signal, spec);
        watch.reap(spec.grace_ms);
        watch.kill_late();
    }
    ::close(lifeline[1]);
    if (watch.at_once) return *watch.at_once;
    return watch.interrupted && weight(watch.code) < 3 ? 128 + SIGINT : watch.code;
}

void pin_rank(const Job& job, const std::string& transport) {
    const std::vector<int> allowed = allowed_processors();
    if (transport != "shm" || job.local_ranks > static_cast<int64_t>(allowed.size())) return;
    run_on({allowed[static_cast<size_t>(job.local_rank)]});  // refused in some containers, which only costs precision
}

void check_nodes(const ScriptCommand& command) {
    if (command.nodes < 1) throw Error(fmt::format("--nodes {}: expected 1 or more", command.nodes));
    if (command.node_rank < 0 || command.node_rank >= command.nodes)
        throw Error(fmt::format("--node-rank {} of --nodes {}: expected 0 to {}", command.node_rank, command.nodes,
                                command.nodes - 1));
}

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

void watch_lifeline() {
    const char* text = std::getenv("ORRERY_LIFELINE");
    if (!text) return;
    const int fd = std::atoi(text);
    ::unsetenv("ORRERY_LIFELINE");
    // A thread and not PR_SET_PDEATHSIG: that one fires when the forking *thread* ends.
    std::thread([fd] {
        pollfd watched{fd, POLLIN, 0};
        while (::poll(&watched, 1, -1) < 0 && errno == EINTR) {
        }
        std::fprintf(stderr, "orrery: the launcher is gone; this rank ends\n");
        ::_exit(1);
    }).detach();
}

}  // namespace orrery
