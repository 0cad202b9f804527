#include "cli/supervise/node_check.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/process.h"
#include "base/seconds.h"
#include "base/text.h"
#include "cli/commands.h"

namespace orrery {
namespace {

constexpr double one_call_s = 5, one_check_s = 120;

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

/// The last message of a program as one line, `no device "cpu"; found in plugins/: cuda`; otherwise its last line.
std::string last_words(const std::string& text) {
    std::string last;
    bool message = false;
    for (const std::string& line : split(text, '\n')) {
        if (line.empty()) continue;
        const bool more = message && line.starts_with("  ");
        constexpr std::string_view speaker = "orrery: ";
        message = more || line.starts_with(speaker);
        last = more ? last + "; " + line.substr(2) : message ? line.substr(speaker.size()) : line;
    }
    return last;
}

/// Whether a --set of the run is valid for `orrery preflight`, too.
bool for_preflight(const std::string& set) {
    for (const char* begins : {"device.", "plugins.", "run.device=", "run.threads_per_rank="})
        if (set.starts_with(begins)) return true;
    return false;
}

}  // namespace

NodeCheck check_by_run(std::vector<std::string> arguments, double seconds, double in_all) {
    using Clock = std::chrono::steady_clock;
    // Static, as a check outlasts a call. Its process is killed when the thread that started it exits.
    static std::future<ChildEnd> running;
    static Clock::time_point began;
    static pid_t held = 0;  // process that did not end when it was killed
    const auto limit = milliseconds(seconds);
    if (held > 0 && !ends_within(held, limit))
        return {Fitness::late,
                fmt::format("its previous check, process {}, is still running: a disk may be hanging", held)};
    held = 0;
    const auto ready = [](auto wait) { return running.wait_for(wait) == std::future_status::ready; };
    // What a check found long ago, and no call has read, says nothing of today.
    if (running.valid() && seconds_since(began) > in_all && ready(limit)) running = {};
    if (!running.valid()) {
        began = Clock::now();
        arguments.insert(arguments.begin(), "/proc/self/exe");
        std::packaged_task<ChildEnd()> check(
            [arguments, in_all] { return run_child(arguments, milliseconds(in_all)); });
        std::future<ChildEnd> end = check.get_future();
        try {
            std::thread(std::move(check)).detach();
        } catch (const std::system_error& error) {
            return {Fitness::unfit, fmt::format("its check cannot be started: {}", error.what())};
        }
        running = std::move(end);
    }
    if (!ready(limit))
        return {Fitness::late, fmt::format("its check is still running after {:.0f} s", seconds_since(began))};
    const ChildEnd end = running.get();
    held = end.held;
    if (end.late) return {Fitness::late, fmt::format("its check timed out after {:g} s", in_all)};
    if (!end.problem.empty()) return {Fitness::unfit, "its check cannot be started: " + end.problem};
    if (end.code == 0 && end.signal == 0) return {};
    const bool error = end.errors.starts_with("orrery: ") || end.errors.find("\norrery: ") != std::string::npos;
    const std::string words = last_words(error ? end.output + end.errors : end.errors + end.output);
    return {end.code == 2 ? Fitness::wrong : Fitness::unfit, words.empty() ? "its check " + end.why_not() : words};
}

NodeCheck check_node(const ScriptCommand& command, const std::string& folder) {
    std::vector<std::string> arguments = {"preflight", "--quick", "--ranks", "1", "--folder", folder,
                                          // The check is not a task, even if srun or mpirun has started this launcher.
                                          "--set", "run.launcher=orrery"};
    if (!command.config.empty()) arguments.insert(arguments.end(), {"--config", command.config});
    for (const std::string& set : command.sets)
        if (for_preflight(set)) arguments.insert(arguments.end(), {"--set", set});
    return check_by_run(arguments, one_call_s, one_check_s);
}

}  // namespace orrery
