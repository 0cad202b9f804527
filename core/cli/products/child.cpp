#include "cli/products/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "cli/signals.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t most_bytes = 1 << 16;
constexpr int cannot_start = 127;

/// A pipe whose ends are both closed in started programs.
struct Pipe {
    int read = -1, write = -1;

    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) == 0) read = above_standard(ends[0]), write = above_standard(ends[1]);
    }
    ~Pipe() {
        close(read);
        close(write);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    static void close(int& end) {
        if (end >= 0) ::close(end);
        end = -1;
    }

private:
    /// Moves an end above the standard streams: if this process closed its own, a pipe would get their numbers and lose
    /// them in the child.
    static int above_standard(int end) {
        if (end > STDERR_FILENO) return end;
        const int higher = ::fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        ::close(end);
        return higher;
    }
};

/// Resets handlers: a signal before exec would otherwise run the parent's handler, with locks held by threads that do
/// not exist in the child.
void default_handlers() {
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction now {};
        if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL) continue;
        now = {};
        now.sa_handler = SIG_DFL;
        ::sigaction(number, &now, nullptr);
    }
}

/// Runs in the child; calls only functions that are allowed between fork and exec in a multi-threaded process.
[[noreturn]] void become(char* const* arguments, int output, int errors, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(cannot_start);
    const rlimit no_core{0, 0};  // the program may crash deliberately
    ::setrlimit(RLIMIT_CORE, &no_core);
    default_handlers();
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::execv(arguments[0], arguments);
    ::_exit(cannot_start);
}

/// Appends available output; false at the end of the stream.
bool take(int end, std::string& text) {
    char bytes[4096];
    const ssize_t got = ::read(end, bytes, sizeof bytes);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    text.append(bytes, std::min(static_cast<size_t>(got), most_bytes - text.size()));
    return got > 0;
}

enum class Wait { ended, late, stopped, unknown };

/// A started child and its output.
struct Child {
    pid_t number;
    std::array<Pipe*, 2> pipes;
    std::array<std::string*, 2> texts;
    HeldSignals* stop;  ///< may be null
    int signal = 0;     ///< the last signal from `stop`
    int status = 0;

    /// Reads until both streams end, `until` is reached, or a signal arrives. The child may have closed the streams and
    /// still run.
    void listen(Clock::time_point until);
    /// Unknown: this process ignores SIGCHLD, so the child's status is lost.
    Wait wait(Clock::time_point until);
    Wait end_of(Clock::time_point until) {
        listen(until);
        return signal != 0 ? Wait::stopped : wait(until);
    }
    void end(bool asked);
};

void Child::listen(Clock::time_point until) {
    for (;;) {
        std::array<pollfd, 3> wait{};
        for (size_t i = 0; i < 2; ++i) wait[i] = {pipes[i]->read, POLLIN, 0};
        wait[2] = {stop ? stop->file() : -1, POLLIN, 0};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
        if ((wait[0].fd < 0 && wait[1].fd < 0) || left <= 0) return;
        if (::poll(wait.data(), wait.size(), static_cast<int>(left)) < 0 && errno != EINTR) return;
        for (size_t i = 0; i < 2; ++i)
            if (wait[i].revents != 0 && !take(wait[i].fd, *texts[i])) Pipe::close(pipes[i]->read);
        if (wait[2].revents != 0 && (signal = stop->take()) != 0) return;
    }
}

Wait Child::wait(Clock::time_point until) {
    for (;;) {
        const pid_t found = ::waitpid(number, &status, WNOHANG);
        if (found == number) return Wait::ended;
        if (found < 0 && errno != EINTR) return Wait::unknown;
        if (Clock::now() >= until) return Wait::late;
        if (stop && (signal = stop->take()) != 0) return Wait::stopped;
        ::poll(nullptr, 0, 2);
    }
}

/// `asked`: lets the child clean up first. The streams end only when programs that it started are gone, too.
void Child::end(bool asked) {
    signal = 0;
    if (asked) ::kill(number, SIGTERM);
    if (asked && end_of(Clock::now() + std::chrono::seconds(10)) == Wait::ended) return;
    ::kill(number, SIGKILL);
    while (::waitpid(number, &status, 0) < 0 && errno == EINTR) {
    }
    if (!stop) return;
    stop = nullptr;
    listen(Clock::now() + std::chrono::seconds(2));
}

std::string last_line(const std::string& text) {
    const std::string_view whole = trim(text);
    const size_t line = whole.rfind('\n');
    return std::string(line == std::string_view::npos ? whole : whole.substr(line + 1));
}

}  // namespace

std::string ChildEnd::why_not() const {
    if (!problem.empty()) return "could not be run: " + problem;
    if (stopped != 0) return fmt::format("was stopped by signal {} ({})", stopped, ::strsignal(stopped));
    if (late) return fmt::format("did not end within {} s", std::chrono::duration<double>(limit).count());
    if (signal != 0) return fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal));
    if (code == 0) return "";
    const std::string said = last_line(errors);
    return fmt::format("ended with exit code {}{}{}", code, said.empty() ? "" : ": ", said);
}

ChildEnd run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds limit, HeldSignals* stop) {
    ChildEnd end;
    end.limit = limit;
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    Pipe output, errors;
    const pid_t parent = ::getpid();
    const pid_t number = output.write >= 0 && errors.write >= 0 ? ::fork() : -1;
    if (number < 0) {
        end.problem = std::strerror(errno);
        return end;
    }
    if (number == 0) become(argv.data(), output.write, errors.write, parent);
    Pipe::close(output.write);
    Pipe::close(errors.write);
    Child child{number, {&output, &errors}, {&end.output, &end.errors}, stop};
    switch (child.end_of(Clock::now() + limit)) {
        case Wait::unknown: end.problem = std::strerror(errno); return end;
        case Wait::late:
            end.late = true;
            child.end(false);
            return end;
        case Wait::stopped:
            end.stopped = child.signal;
            child.end(true);
            return end;
        case Wait::ended: break;
    }
    if (WIFSIGNALED(child.status))
        end.signal = WTERMSIG(child.status);
    else if (WEXITSTATUS(child.status) == cannot_start)
        end.problem = fmt::format("{} cannot be executed", arguments.front());
    else
        end.code = WEXITSTATUS(child.status);
    return end;
}

}  // namespace orrery
