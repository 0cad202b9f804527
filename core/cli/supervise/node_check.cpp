#include "cli/supervise/node_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include "base/text.h"
#include "cli/commands.h"

extern char** environ;

namespace orrery {
namespace {

constexpr double most_s = 5;

/// The last message in one line, "no device "cpu"; found in plugins/: cuda"; the last line if there is no message.
std::string last_words(int file) {
    char text[4096];
    const off_t size = ::lseek(file, 0, SEEK_END);
    const off_t from = size > static_cast<off_t>(sizeof text) ? size - static_cast<off_t>(sizeof text) : 0;
    const ssize_t read = ::pread(file, text, sizeof text, from);
    std::string last;
    bool message = false;
    for (const std::string& line : split(std::string_view(text, static_cast<size_t>(read < 0 ? 0 : read)), '\n')) {
        if (line.empty()) continue;
        const bool more = message && line.starts_with("  ");
        constexpr std::string_view speaker = "orrery: ";
        message = more || line.starts_with(speaker);
        last = more ? last + "; " + line.substr(2) : message ? line.substr(speaker.size()) : line;
    }
    return last;
}

/// Whether a setting of the run also applies to preflight.
bool for_preflight(const std::string& set) {
    for (const char* begins : {"device.", "plugins.", "run.device=", "run.threads_per_rank="})
        if (set.starts_with(begins)) return true;
    return false;
}

/// Exit status of the process; none: still running after `limit` seconds.
std::optional<int> ends_within(pid_t pid, double limit) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() >= until) return std::nullopt;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return status;
}

}  // namespace

NodeCheck check_by_run(const std::vector<std::string>& arguments, double seconds) {
    static pid_t held = 0;  // static, since child processes belong to the whole process
    if (held > 0 && !ends_within(held, seconds))
        return {Fitness::late, fmt::format("its check before, process {}, does not end: a disk may not answer", held)};
    held = 0;
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const int said = ::memfd_create("orrery-check", MFD_CLOEXEC);
    if (said < 0) return {Fitness::unfit, fmt::format("cannot be looked at: {}", std::strerror(errno))};
    int lifeline[2];  // the child ends with this process
    if (::pipe2(lifeline, O_CLOEXEC) != 0) {
        ::close(said);
        return {Fitness::unfit, fmt::format("cannot be looked at: cannot make a pipe: {}", std::strerror(errno))};
    }
    std::string variable = fmt::format("ORRERY_LIFELINE={}", lifeline[0]);
    std::vector<char*> envp;
    for (char** e = environ; *e; ++e) envp.push_back(*e);
    envp.push_back(variable.data());
    envp.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::dup2(said, STDOUT_FILENO);
        ::dup2(said, STDERR_FILENO);
        sigset_t none;
        ::sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::fcntl(lifeline[0], F_SETFD, 0);
        ::execve("/proc/self/exe", argv.data(), envp.data());
        ::_exit(127);
    }
    ::close(lifeline[0]);
    NodeCheck found;
    if (pid < 0) {
        found = {Fitness::unfit, fmt::format("cannot be looked at: fork: {}", std::strerror(errno))};
    } else if (const auto status = ends_within(pid, seconds); !status) {
        ::kill(pid, SIGKILL);
        if (!ends_within(pid, 1)) held = pid;  // blocked by a disk: waiting for it would delay signals
        found = {Fitness::late, fmt::format("its check takes more than {:g} s", seconds)};
    } else if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
        const std::string words = last_words(said);
        const bool mistake = WIFEXITED(*status) && WEXITSTATUS(*status) == 2;
        found = {mistake ? Fitness::wrong : Fitness::unfit,
                 words.empty() ? fmt::format("its check ended with status {}", *status) : words};
    }
    ::close(lifeline[1]);
    ::close(said);
    return found;
}

NodeCheck check_node(const ScriptCommand& command, const std::string& folder) {
    std::vector<std::string> arguments = {"orrery", "preflight", "--quick", "--ranks", "1", "--folder", folder};
    if (!command.config.empty()) arguments.insert(arguments.end(), {"--config", command.config});
    for (const std::string& set : command.sets)
        if (for_preflight(set)) arguments.insert(arguments.end(), {"--set", set});
    return check_by_run(arguments, most_s);
}

}  // namespace orrery
