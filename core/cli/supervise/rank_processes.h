#pragma once
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/process.h"
#include "cli/launch.h"
#include "cli/supervise/verdict.h"

namespace orrery {

class Board;

/// Blocks stop signals and SIGCHLD in this thread and in threads that it creates, so that sigtimedwait receives them.
struct SignalsHeld {
    SignalsHeld();
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    /// Returns the next signal; 0: none within `limit`.
    int take(std::chrono::milliseconds limit) const;

    sigset_t mask, before;
};

/// The rank processes of one host in one generation, from their start to the end of the last.
class RankProcesses {
public:
    /// Starts the processes. `held.before` is the signal mask that they get. `board`: where they report progress, or
    /// nullptr; `best`: the newest step that any generation has finished.
    RankProcesses(const LaunchSpec& spec, const Job& shared, const SignalsHeld& held, Board* board = nullptr,
                  int64_t best = 0);
    /// Kills and reaps the processes that still run.
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;

    bool any() const;
    /// Handles a signal that this process received.
    void asked(int signal);
    /// Reaps ranks that have ended, and kills ranks that are late.
    void look();
    /// Ends the ranks as if one had failed. `grace_ms`: time before they are killed.
    void end(int grace_ms);
    /// Whether a killed rank does not end, since the system holds it, for example in a disk wait.
    bool stuck() const;
    /// The command's exit code, once all have ended.
    int code() const;
    /// How each rank ended, in the order of their ends.
    const std::vector<RankEnd>& ends() const { return ends_; }
    /// Returns a rank that has waited for a disk at every call for at least `seconds`, without a call that reported
    /// `moved` steps; nullopt if there is none.
    std::optional<int64_t> waits_for_disk(double seconds, bool moved);
    /// Ends the ranks if every running one was stopped (SIGSTOP) at each call for `silence`. The others report a single
    /// stopped rank; if all are stopped, none can. Calls far apart do not count: this process was stopped, too.
    void end_stopped(std::chrono::milliseconds silence);

private:
    using Clock = std::chrono::steady_clock;
    struct Child {
        pid_t pid = -1;
        int64_t rank = 0;
        std::string nonce = {};
        bool running = false, late = false;
        char state = 0;
        std::optional<Clock::time_point> disk_since = {};
    };
    void forward(int signal) const;
    void reap();
    void ended(Child& child, int status);
    void kill_late();
    bool tell_gone(const Child& child, Loss how) const;
    RankEnd end_of(const Child& child, int status) const;

    const LaunchSpec& spec_;
    Board* const board_;
    Pipe lifeline_;  ///< inherited by the ranks, which end with this process
    std::vector<Child> children_;
    std::vector<RankEnd> ends_;
    std::optional<Clock::time_point> deadline_, killed_, stopped_since_, looked_;
    std::optional<int> at_once_;  ///< exit code that replaces the ranks' codes
    int code_ = 0;
    bool interrupted_ = false, stopping_ = false, told_stuck_ = false;
};

}  // namespace orrery
