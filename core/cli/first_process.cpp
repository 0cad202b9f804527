#include "cli/first_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace orrery {
namespace {

/// Exits once no process is left. All others are killed with this one: the process that collects the output would not
/// have written yet what a command printed before it crashed.
[[noreturn]] void leave(int code) {
    using Clock = std::chrono::steady_clock;
    constexpr auto limit = std::chrono::seconds(10);  // a script may have left a process that does not end
    const timespec tick{0, 100'000'000};
    sigset_t ended;
    ::sigemptyset(&ended);
    ::sigaddset(&ended, SIGCHLD);
    const auto until = Clock::now() + limit;
    for (pid_t found; (found = ::waitpid(-1, nullptr, WNOHANG)) >= 0 && Clock::now() < until;)
        if (found == 0) ::sigtimedwait(&ended, nullptr, &tick);
    ::_exit(code);
}

/// Reaps all processes that have ended. If `child` is one of them, exits with its exit code.
void reap(pid_t child) {
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        if (ended != child) continue;
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code == 0) ::_exit(0);  // it has waited for its output
        leave(code);
    }
}

}  // namespace

void leave_first_process() {
    if (::getpid() != 1) return;
    sigset_t all, before;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    ::signal(SIGCHLD, SIG_DFL);  // where it is ignored, there is no exit code to wait for
    const pid_t child = ::fork();
    if (child < 0) {
        std::fprintf(stderr, "orrery: cannot start a process: fork: %s\n", std::strerror(errno));
        ::_exit(1);
    }
    if (child == 0) {
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return;
    }
    for (;;) {
        siginfo_t info{};
        const int signal = ::sigwaitinfo(&all, &info);
        if (signal == SIGCHLD) reap(child);
        // A terminal sends its signals to the child, too (SI_KERNEL).
        if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) ::kill(child, signal);
    }
}

}  // namespace orrery
