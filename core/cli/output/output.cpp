#include "cli/output/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "cli/output/collector.h"
#include "cli/output/message.h"
#include "cli/output/terminal.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr const char* output_variable = "ORRERY_OUTPUT";
// Max wait for a terminal that is not read, at the end of a rank and of the command.
constexpr std::chrono::seconds rank_limit(2), command_limit(10);

int control_socket = -1;        ///< socket of messages to the collecting process; -1: there is none
bool owns_collector = false;    ///< this process has started it
bool with_progress = false;     ///< a terminal shows the progress line
bool one_target = false;        ///< stdout and stderr of the command are the same
std::mutex asking;              ///< of the next two: the launcher and a signal may end ranks and command
int64_t asked = 0, done = -1;   ///< numbers of the last message to be acknowledged, and of the last that was
std::atomic<bool> slow{false};  ///< an acknowledgement did not come in time: those for ranks are not waited for

/// Lines are passed on when they are complete, as on a terminal: a killed process has printed them.
void print_by_lines() { std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); }

[[noreturn]] void fail_collecting(const char* what) {
    throw Error(fmt::format("cannot collect the output of ranks: {}: {}", what, std::strerror(errno)), Fault::failed);
}

/// Returns a copy of a standard stream that programs do not inherit; -1 if the stream is closed.
int copy_of(int stream) { return ::fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }

/// The collecting process. Signals that are sent to the command, or to all of a terminal, must not end it.
[[noreturn]] void be_collector(CollectedStreams streams) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTOU})
        ::signal(signal, SIG_IGN);
    ::prctl(PR_SET_NAME, "orrery-output");
    rlimit files{};  // two streams of each rank
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    // Files that the command inherited would stay open as long as this process.
    std::array<int*, 5> used = {&streams.control, &streams.output, &streams.errors, &streams.terminal,
                                &streams.terminal_errors};
    constexpr int above = 8;
    for (int* const file : used)
        if (*file >= 0) *file = ::fcntl(*file, F_DUPFD_CLOEXEC, above);
    int next = 0;
    for (int* const file : used)
        if (*file >= 0) *file = ::dup3(*file, next++, O_CLOEXEC);
    if (::close_range(static_cast<unsigned>(next), ~0U, 0) != 0)  // a kernel before 5.9
        for (int file = next; file < 65536; ++file) ::close(file);
    ::_exit(collect(streams));
}

/// Receives acknowledgements until message `number` has one; `nothing`: it has none yet.
Received take_acknowledgement(int64_t number) {
    const std::lock_guard lock(asking);
    Received received = Received::message;
    for (; done < number && received == Received::message;) {
        OutputMessage message;
        received = receive(control_socket, message);
        if (received == Received::message) done = std::max(done, message.text.value("done", int64_t{0}));
    }
    return received;
}

/// Waits for the acknowledgement of message `number`; false: the collecting process has ended.
bool wait_for(int64_t number, std::chrono::milliseconds limit) {
    using Clock = std::chrono::steady_clock;
    constexpr int64_t tick_ms = 50;  // another thread may receive it
    const auto until = Clock::now() + limit;
    for (;;) {
        const Received received = take_acknowledgement(number);
        if (received != Received::nothing) return received == Received::message;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
        if (left <= 0) {
            slow = true;
            return true;
        }
        pollfd wait{control_socket, POLLIN, 0};
        ::poll(&wait, 1, static_cast<int>(std::min(left, tick_ms)));
    }
}

void ask(Json text, std::chrono::milliseconds limit) {
    int64_t number = 0;
    {
        const std::lock_guard lock(asking);
        text["number"] = number = ++asked;
        send_message(control_socket, text);
    }
    wait_for(number, limit);
}

}  // namespace

void collect_output() {
    if (control_socket >= 0) return;
    std::fflush(stdout);
    std::fflush(stderr);
    CollectedStreams streams;
    streams.terminal = copy_of(STDOUT_FILENO);
    streams.terminal_errors = copy_of(STDERR_FILENO);
    one_target = same_file(streams.terminal, streams.terminal_errors);
    with_progress = ::isatty(streams.terminal) == 1;
    Pipe output, errors;
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) fail_collecting("socketpair");
    control_socket = ::fcntl(sockets[0], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    streams.control = ::fcntl(sockets[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(sockets[0]), ::close(sockets[1]);
    streams.output = output.read;
    streams.errors = one_target ? -1 : errors.read;
    const pid_t child = ::fork();
    if (child < 0) fail_collecting("fork");
    if (child == 0) {
        // A process of its own session, which is not a child of the command: it survives signals to the command's
        // group, and programs that wait for the command's children do not see it.
        ::setsid();
        const pid_t second = ::fork();
        if (second != 0) ::_exit(second < 0 ? 1 : 0);
        be_collector(streams);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    errno = EAGAIN;
    if (status != 0) fail_collecting("fork");
    ::close(std::exchange(streams.control, -1));
    errno = EAGAIN;
    if (!wait_for(0, command_limit)) fail_collecting("a thread cannot be started");
    ::signal(SIGPIPE, SIG_IGN);
    ::dup2(output.write, STDOUT_FILENO);
    ::dup2(one_target ? output.write : errors.write, STDERR_FILENO);
    for (const int file : {streams.terminal, streams.terminal_errors, streams.control})
        if (file >= 0) ::close(file);
    owns_collector = true;
    print_by_lines();
}

void take_up_output() {
    const char* const text = std::getenv(output_variable);
    if (!text) return;
    int progress = 0;
    if (std::sscanf(text, "%d,%d", &control_socket, &progress) != 2) control_socket = -1;
    with_progress = progress != 0;
    ::unsetenv(output_variable);
    if (control_socket < 0) return;
    ::fcntl(control_socket, F_SETFD, FD_CLOEXEC);
    print_by_lines();
}

bool output_is_collected() { return control_socket >= 0; }

RankStreams::RankStreams(int64_t rank, Shown shown, const std::string& folder, int64_t generation)
    : one_(one_target && shown == Shown::plain) {
    if (!send_message(control_socket,
                      {{"do", "rank"},
                       {"rank", rank},
                       {"shown", static_cast<int>(shown)},
                       {"folder", folder},
                       {"generation", generation}},
                      {output_.read, one_ ? -1 : errors_.read}))
        fail_collecting("sendmsg");
}

void RankStreams::give_to(ProcessStart& start) const {
    start.output = output_.write;
    start.errors = one_ ? output_.write : errors_.write;
    start.own_input = true;
    start.passed = control_socket;
    start.variables.push_back(fmt::format("{}={},{}", output_variable, control_socket, with_progress ? 1 : 0));
}

void show_output(int64_t rank, std::optional<Shown> shown) {
    if (!owns_collector) return;
    Json text = {{"do", "show"}, {"rank", rank}};
    if (shown) text["shown"] = static_cast<int>(*shown);
    send_message(control_socket, text);
}

void log_output(int64_t rank, const std::string& folder, int64_t generation) {
    if (control_socket < 0) return;
    send_message(control_socket, {{"do", "place"}, {"rank", rank}, {"folder", folder}, {"generation", generation}});
}

std::function<void(const std::string&)> progress_line() {
    if (!with_progress) return {};
    return [](const std::string& text) {
        send_message(control_socket, {{"do", "progress"}, {"text", text}}, {-1, -1}, true);
    };
}

void rank_ended(int64_t rank, int code, bool killed) {
    if (control_socket < 0) return;
    ask({{"do", "ended"}, {"rank", rank}, {"code", code}, {"killed", killed}},
        slow ? std::chrono::seconds(0) : rank_limit);
}

void follows_another(int64_t rank) {
    if (control_socket >= 0) send_message(control_socket, {{"do", "follows"}, {"rank", rank}});
}

void finish_output(int code) {
    if (!owns_collector) return;
    std::fflush(stdout);
    ask({{"do", "finish"}, {"code", code}}, command_limit);
}

}  // namespace orrery
