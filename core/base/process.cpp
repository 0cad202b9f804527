#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/files/atomic_file.h"
#include "base/signals.h"
#include "base/text.h"
#include "orrery/error.h"

extern char** environ;

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t most_bytes = 1 << 16;
constexpr int cannot_start = 127;

/// Resets signal handlers in the child. A signal before exec would otherwise run a handler of the parent, with locks
/// held by threads that do not exist in the child.
void default_handlers() {
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction now {};
        if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL) continue;
        now = {};
        now.sa_handler = SIG_DFL;
        ::sigaction(number, &now, nullptr);
    }
}

/// Moves a pipe's end to a number above the standard streams. If this process has closed a standard stream, a pipe
/// would get its number, and the child would lose the pipe.
int above_standard(int end) {
    if (end > STDERR_FILENO) return end;
    const int higher = ::fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(end);
    return higher;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
}

/// Returns this process's environment with `variables` added or replaced. If a name occurred twice, a program would
/// read the first value, such as the user's ORRERY_TOKEN instead of the job's.
std::vector<std::string> environment_with(std::vector<std::string> variables) {
    const auto given = static_cast<std::ptrdiff_t>(variables.size());
    for (char** e = environ; *e; ++e) {
        const std::string_view had = *e, name = had.substr(0, had.find('=') + 1);
        if (std::none_of(variables.begin(), variables.begin() + given,
                         [&](const std::string& variable) { return variable.starts_with(name); }))
            variables.emplace_back(had);
    }
    return variables;
}

void end_with(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(cannot_start);
}

/// Runs in the child; calls only functions that are allowed between fork and exec in a multi-threaded process.
[[noreturn]] void become(const ProcessStart& start, char* const* arguments, char* const* variables, pid_t parent) {
    if (start.bound) end_with(parent);
    default_handlers();
    if (start.lifeline >= 0) ::fcntl(start.lifeline, F_SETFD, 0);
    if (start.passed >= 0) ::fcntl(start.passed, F_SETFD, 0);
    if (start.output >= 0 && !start.own_input) {
        const rlimit no_core{0, 0};  // no core dump: the program may crash on purpose
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::dup2(start.input >= 0 ? start.input : ::open("/dev/null", O_RDONLY), STDIN_FILENO);
    }
    if (start.output >= 0) {
        ::dup2(start.output, STDOUT_FILENO);
        ::dup2(start.errors, STDERR_FILENO);
    }
    sigset_t blocked;
    ::sigemptyset(&blocked);
    if (start.blocked) blocked = *start.blocked;
    ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
    ::execve(start.program.c_str(), arguments, variables);
    ::_exit(cannot_start);
}

/// Appends the output that a child has written to `text`; returns false at the end of the stream.
bool take(int end, std::string& text) {
    char bytes[4096];
    const ssize_t got = ::read(end, bytes, sizeof bytes);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    text.append(bytes, std::min(static_cast<size_t>(got), most_bytes - text.size()));
    return got > 0;
}

/// Closes a descriptor, unless it is -1.
struct Descriptor {
    explicit Descriptor(int which) : number(which) {}
    ~Descriptor() { Pipe::close(number); }
    Descriptor(const Descriptor&) = delete;
    int number;
};

enum class Wait { ended, late, stopped, unknown };

struct Child {
    pid_t number;
    std::array<Pipe*, 2> pipes;
    std::array<std::string*, 2> texts;
    HeldSignals* stop;  ///< stop signals to watch for; may be null
    int signal = 0;     ///< the last signal taken from `stop`
    int status = 0;
    pid_t held = 0;

    /// Reads until both streams end, `until` is reached, or a signal arrives. The child may close both and still run.
    void listen(Clock::time_point until);
    /// Waits for the child's exit. If this process ignores SIGCHLD, the exit status is unknown: the system discards it.
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

/// Kills the child. `asked`: sends SIGTERM first. Its streams end only when programs that the child started have ended.
void Child::end(bool asked) {
    signal = 0;
    if (asked) ::kill(number, SIGTERM);
    if (asked && end_of(Clock::now() + std::chrono::seconds(10)) == Wait::ended) return;
    ::kill(number, SIGKILL);
    if (!ends_within(number, std::chrono::seconds(1))) held = number;  // still there; longer waits would delay signals
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

Pipe::Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)), Fault::failed);
    read = above_standard(ends[0]), write = above_standard(ends[1]);
    if (read >= 0 && write >= 0) return;
    const int code = errno;
    close(read), close(write);
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(code)), Fault::failed);
}

Pipe::~Pipe() {
    close(read);
    close(write);
}

void Pipe::close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
}

int input_of(std::string_view text) {
    if (text.empty()) return -1;
    const int file = above_standard(::memfd_create("input", MFD_CLOEXEC));
    const int problem = file < 0 ? errno : write_all(file, text);
    if (problem == 0 && ::lseek(file, 0, SEEK_SET) == 0) return file;
    throw Error(fmt::format("cannot pass a text to a program: {}", std::strerror(problem != 0 ? problem : errno)),
                Fault::failed);
}

pid_t start_process(const ProcessStart& start) {
    std::vector<std::string> variables = start.variables;
    if (start.lifeline >= 0) variables.push_back(fmt::format("ORRERY_LIFELINE={}", start.lifeline));
    variables = environment_with(std::move(variables));
    const std::vector<char*> argv = pointers_to(start.arguments), envp = pointers_to(variables);
    const pid_t parent = ::getpid(), child = ::fork();
    if (child == 0) become(start, argv.data(), envp.data(), parent);
    return child;
}

pid_t start_copy(const std::function<int()>& work) {
    const pid_t parent = ::getpid(), child = ::fork();
    if (child != 0) return child;
    end_with(parent);
    ::_exit(work());
}

std::optional<int> ends_within(pid_t process, std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    int status = 0;
    while (::waitpid(process, &status, WNOHANG) == 0) {
        if (Clock::now() >= until) return std::nullopt;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return status;
}

std::string ChildEnd::why_not() const {
    if (!problem.empty()) return "could not be run: " + problem;
    if (stopped != 0) return fmt::format("was stopped by signal {} ({})", stopped, ::strsignal(stopped));
    if (late) return fmt::format("did not end within {} s", std::chrono::duration<double>(limit).count());
    if (signal != 0) return fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal));
    if (code == 0) return "";
    const std::string said = last_line(errors);
    return fmt::format("ended with exit code {}{}{}", code, said.empty() ? "" : ": ", said);
}

ChildEnd run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds limit, HeldSignals* stop,
                   std::string_view input) try {
    ChildEnd end;
    end.limit = limit;
    Pipe output, errors;
    const Descriptor given{input_of(input)};
    const pid_t number = start_process({.program = arguments.front(),
                                        .arguments = arguments,
                                        .output = output.write,
                                        .errors = errors.write,
                                        .input = given.number,
                                        .bound = true});
    if (number < 0) {
        end.problem = std::strerror(errno);
        return end;
    }
    Pipe::close(output.write);
    Pipe::close(errors.write);
    Child child{number, {&output, &errors}, {&end.output, &end.errors}, stop};
    switch (child.end_of(Clock::now() + limit)) {
        case Wait::unknown: end.problem = std::strerror(errno); return end;
        case Wait::late:
            end.late = true;
            child.end(false);
            end.held = child.held;
            return end;
        case Wait::stopped:
            end.stopped = child.signal;
            child.end(true);
            end.held = child.held;
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
} catch (const Error& error) {  // no pipe could be created
    return {.problem = error.what(), .limit = limit};
}

}  // namespace orrery
