#include "cli/supervise/rank_processes.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/processors.h"
#include "base/signals.h"
#include "cli/output/output.h"
#include "cli/supervise/board.h"
#include "orrery/error.h"
#include "run/control/rendezvous.h"

namespace orrery {
namespace {

constexpr auto tell_stuck = std::chrono::seconds(5), give_up = std::chrono::seconds(300);

void pin(const std::vector<int>& processors) {
    if (!run_on(processors))
        std::fprintf(stderr, "orrery: cannot pin the ranks to processors: %s; set run.pin_ranks = false\n",
                     std::strerror(errno));
}

/// Priority of a rank's exit code as the launcher's: failure 3, SIGINT 2, other signals 1, success 0.
int weight(int code) { return code == 0 ? 0 : code == 75 ? 1 : code == 128 + SIGINT ? 2 : 3; }

/// Returns the state letter in a stat file of /proc, of a process or a thread; 0: unknown.
char state_in(const std::string& file) {
    std::FILE* stat = std::fopen(file.c_str(), "re");
    if (!stat) return 0;
    char text[256] = {};
    const size_t read = std::fread(text, 1, sizeof text - 1, stat);
    std::fclose(stat);
    const std::string_view line(text, read);
    const size_t name = line.rfind(") ");  // the last one, since a program's name may contain ") "
    return name == std::string_view::npos || name + 2 >= line.size() ? 0 : line[name + 2];
}

/// Returns the state letter of a process: D if any of its threads waits for a disk, else that of the main thread.
char state_of(pid_t pid) {
    const std::string tasks = fmt::format("/proc/{}/task", pid);
    std::error_code problem;
    for (const auto& task : std::filesystem::directory_iterator(tasks, problem))
        if (state_in(task.path().string() + "/stat") == 'D') return 'D';
    return state_in(fmt::format("{}/{}/stat", tasks, pid));
}

}  // namespace

SignalsHeld::SignalsHeld() : mask(stop_signals()) {
    ::sigaddset(&mask, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &mask, &before);
}

SignalsHeld::~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }

int SignalsHeld::take(std::chrono::milliseconds limit) const {
    const timespec tick{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
    return std::max(0, ::sigtimedwait(&mask, nullptr, &tick));
}

RankProcesses::RankProcesses(const LaunchSpec& spec, const Job& shared, const SignalsHeld& held, Board* board,
                             int64_t best)
    : spec_(spec), board_(board) {
    const std::vector<int> allowed = allowed_processors();
    for (int64_t i = 0; i < spec.local_ranks; ++i) {
        Job job = shared;
        job.rank = spec.first_rank + i;
        job.local_rank = i;
        job.local_ranks = spec.local_ranks;
        job.nonce = make_nonce();
        // Signals that `held.before` blocks stay pending in the rank until it can handle them.
        ProcessStart start{.program = "/proc/self/exe",
                           .arguments = spec.arguments,
                           .variables = environment_of(job),
                           .lifeline = lifeline_.read,
                           .blocked = held.before};
        if (board_) start.variables.push_back(board_->variable(i, best));
        std::optional<RankStreams> streams;
        if (output_is_collected())
            streams
                .emplace(job.rank,
                         job.rank == 0    ? Shown::plain
                         : spec.shows_all ? Shown::prefixed
                                          : Shown::nothing,
                         spec.folder, job.generation)
                .give_to(start);
        if (!spec.processors.empty()) pin(spec.processors[static_cast<size_t>(i)]);  // children inherit the affinity
        const pid_t pid = start_process(start);
        if (pid < 0) throw Error(fmt::format("cannot start a rank: fork: {}", std::strerror(errno)), Fault::failed);
        children_.push_back({pid, job.rank, job.nonce, true});
    }
    if (!spec.processors.empty()) pin(allowed);
    Pipe::close(lifeline_.read);
}

RankProcesses::~RankProcesses() {
    forward(SIGKILL);
    const auto until = Clock::now() + tell_stuck;
    for (const Child& child : children_)
        if (child.running) ends_within(child.pid, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()));
}

void RankProcesses::forward(int signal) const {
    for (const Child& child : children_)
        if (child.running) ::kill(child.pid, signal);
}

bool RankProcesses::any() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
}

bool RankProcesses::tell_gone(const Child& child, Loss how) const {
    how.rank = child.rank;
    how.pid = child.pid;
    how.nonce = child.nonce;
    return !spec_.gone || spec_.gone(how);
}

RankEnd RankProcesses::end_of(const Child& child, int status) const {
    RankEnd end{child.rank, child.pid};
    if (WIFSIGNALED(status))
        end.signal = WTERMSIG(status);
    else
        end.code = WEXITSTATUS(status);
    end.late = child.late;
    end.state = child.state;
    end.done = !board_;
    if (!board_) return end;
    const RankTells& told = board_->of(child.rank - spec_.first_rank);
    const int how = told.end;
    end.done = how == 1;
    if (how != 2) return end;
    try {
        end.told = decode_loss({told.loss, ::strnlen(told.loss, sizeof told.loss)});
    } catch (const Error&) {  // the rank was killed while it reported: its exit code is enough
    }
    return end;
}

void RankProcesses::ended(Child& child, int status) {
    child.running = false;
    ends_.push_back(end_of(child, status));
    const RankEnd& end = ends_.back();
    const bool first = !deadline_;
    const bool early = end.signal == 0 && end.code == 0 && !end.done;  // exit code 0 without completion
    const int own = end.signal != 0 || early ? 1 : end.code;
    if (weight(own) == 3 && first)  // set before the others are informed, which may take long
        deadline_ = Clock::now() + std::chrono::milliseconds(spec_.grace_ms);
    rank_ended(child.rank, end.late ? 0 : own, end.signal != 0);
    if (end.signal != 0) {
        const std::string how =
            fmt::format("(pid {}) was killed by signal {} ({})", child.pid, end.signal, ::strsignal(end.signal));
        if (!end.late && !at_once_)  // printed even if another rank, which noticed this failure, has ended before
            std::fprintf(
                stderr, "orrery: rank %lld %s%s\n", static_cast<long long>(child.rank), how.c_str(),
                !first || tell_gone(child, {.cause = Cause::process, .code = own, .site = "signal", .text = how})
                    ? ""
                    : " before it joined");
    } else if (early) {
        const std::string how = fmt::format("(pid {}) exited with code 0 before the run was complete", child.pid);
        std::fprintf(stderr, "orrery: rank %lld %s\n", static_cast<long long>(child.rank), how.c_str());
        if (first) tell_gone(child, {.cause = Cause::early_end, .code = own, .site = "exit", .text = how});
    } else if (first && weight(own) == 3) {
        tell_gone(child, {.cause = own == 2 ? Cause::mistake : Cause::error,
                          .code = own,
                          .site = "exit",
                          .text = fmt::format("(pid {}) ended with exit code {}", child.pid, own)});
    }
    if (own == 0) return;
    if (weight(own) > weight(code_)) code_ = own;
    if (weight(own) == 3 || stopping_) return;
    stopping_ = true;  // the others must stop, too: a scheduler may have signalled this rank only
    forward(SIGTERM);
}

void RankProcesses::asked(int signal, bool here) {
    const bool again = here && signal == SIGINT && interrupted_here_;
    interrupted_ = interrupted_ || signal == SIGINT;
    interrupted_here_ = interrupted_here_ || (here && signal == SIGINT);
    stopping_ = true;
    if (again || !spec_.taken_by) {
        at_once_ = 128 + signal;
        deadline_ = Clock::now() + std::chrono::milliseconds(again ? 0 : spec_.grace_ms);
    }
    if (!spec_.taken_by || signal == SIGUSR1) return forward(signal);
    // Ranks get SIGTERM with the signal as value: a terminal sends them SIGINT, too, and a second one kills them.
    for (const Child& child : children_)
        if (child.running) ::sigqueue(child.pid, SIGTERM, sigval{.sival_int = signal});
}

void RankProcesses::reap() {
    int status = 0;
    for (Child& child : children_)
        if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid) ended(child, status);
}

void RankProcesses::kill_late() {
    if (!any()) return;
    if (killed_ && !told_stuck_ && Clock::now() > *killed_ + tell_stuck) {
        told_stuck_ = true;
        for (const Child& child : children_)
            if (child.running)
                std::fprintf(stderr,
                             "orrery: rank %lld (pid %d) was killed but has not exited: blocked in the kernel%s\n",
                             static_cast<long long>(child.rank), child.pid,
                             state_of(child.pid) == 'D' ? ", waiting for a disk" : "");
    }
    if (!deadline_ || Clock::now() < *deadline_) return;
    for (Child& child : children_) {
        if (!child.running) continue;
        child.late = true;
        child.state = state_of(child.pid);
        if (!at_once_)
            std::fprintf(stderr, "orrery: rank %lld (pid %d) %s\n", static_cast<long long>(child.rank), child.pid,
                         spec_.joined && !spec_.joined(child.rank) ? "had not joined yet and is ended, too"
                                                                   : "did not end in time and is killed");
    }
    forward(SIGKILL);
    killed_ = Clock::now();
    deadline_ = Clock::now() + std::chrono::hours(1);
}

void RankProcesses::look() {
    reap();
    kill_late();
}

void RankProcesses::end(int grace_ms) {
    if (!deadline_) deadline_ = Clock::now() + std::chrono::milliseconds(grace_ms);
}

bool RankProcesses::stuck() const { return killed_ && any() && Clock::now() > *killed_ + give_up; }

int RankProcesses::code() const {
    if (at_once_) return *at_once_;
    return interrupted_ && weight(code_) < 3 ? 128 + SIGINT : code_;
}

std::optional<int64_t> RankProcesses::waits_for_disk(double seconds, bool moved) {
    const auto now = Clock::now();
    for (Child& child : children_) {
        const bool waits = child.running && !moved && state_of(child.pid) == 'D';
        if (!waits) child.disk_since.reset();
        if (waits && !child.disk_since) child.disk_since = now;
        if (waits && std::chrono::duration<double>(now - *child.disk_since).count() >= seconds) return child.rank;
    }
    return std::nullopt;
}

void RankProcesses::end_stopped(std::chrono::milliseconds silence) {
    constexpr std::chrono::milliseconds often(500), far(3000);
    const auto now = Clock::now();
    if (!any() || (looked_ && now - *looked_ < often)) return;
    const bool near = looked_ && now - *looked_ < far;
    looked_ = now;
    const bool all = std::all_of(children_.begin(), children_.end(),
                                 [](const Child& child) { return !child.running || state_of(child.pid) == 'T'; });
    if (!all || !near) stopped_since_.reset();
    if (!all) return;
    if (!stopped_since_) stopped_since_ = now;
    if (deadline_ || now - *stopped_since_ < silence) return;
    std::fprintf(stderr, "orrery: all ranks of this host have been stopped (SIGSTOP) for %g s; they are ended\n",
                 std::chrono::duration<double>(silence).count());
    end(0);
}

}  // namespace orrery
