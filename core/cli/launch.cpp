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

#include "base/processors.h"
#include "base/signals.h"
#include "cli/signals.h"
#include "orrery/error.h"

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
