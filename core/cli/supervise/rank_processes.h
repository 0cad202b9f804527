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

/// Stop signals and SIGCHLD, which wait to be taken by sigtimedwait, in this thread and in those that it makes.
struct SignalsHeld {
    SignalsHeld();
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    /// The next one, 0: none came within `limit`.
    int take(std::chrono::milliseconds limit) const;

    sigset_t mask, before;
};

/// The rank processes of one host in one generation, from their start to the last one's end.
class RankProcesses {
public:
    /// Starts them. `held.before` is what they block. `board`: where they tell what they do, or nullptr; `best`: the
    /// newest step that any generation has finished.
    RankProcesses(const LaunchSpec& spec, const Job& shared, const SignalsHeld& held, Board* board = nullptr,
                  int64_t best = 0);
    /// Kills and reaps those that still run.
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;

    bool any() const;
    /// A signal that this process got.
    void asked(int signal);
    /// Looks who has ended, and kills who should have.
    void look();
    /// They are to end, as if one had failed. `grace_ms`: before they are killed.
    void end(int grace_ms);
    /// A rank was killed so long ago that it will not go: the system holds it, as one that waits for a disk.
    bool stuck() const;
    /// What the command ends with, once all have ended.
    int code() const;
    /// In the order of their ends.
    const std::vector<RankEnd>& ends() const { return ends_; }
    /// A rank that was seen to wait for a disk at each call for at least `seconds`, none of which said that steps have
    /// `moved` on; none.
    std::optional<int64_t> waits_for_disk(double seconds, bool moved);
    /// Ends the ranks where every one that runs was stopped (SIGSTOP) at each call for `silence`. One that is stopped
    /// is reported by the others; when all are, none is left to do so. Calls far from each other say nothing of the
    /// time between: this process was stopped.
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
    Pipe lifeline_;  ///< of the ranks: they end with this process
    std::vector<Child> children_;
    std::vector<RankEnd> ends_;
    std::optional<Clock::time_point> deadline_, killed_, stopped_since_, looked_;
    std::optional<int> at_once_;  ///< the exit code, whatever the ranks' are
    int code_ = 0;
    bool interrupted_ = false, stopping_ = false, told_stuck_ = false;
};

}  // namespace orrery
