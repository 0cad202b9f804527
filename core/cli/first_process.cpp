#include "cli/first_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace orrery {
namespace {

/// Reaps all processes that have ended. Exits if `child` is one of them.
void reap(pid_t child) {
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
        if (ended == child) ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
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
