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

/// Blocks stop signals and SIGCHLD in this thread and in threads that it creates, so that take() receives them.
struct SignalsHeld {
    SignalsHeld();
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    /// Returns the next signal; 0: none within `limit`.
    int take(std::chrono::milliseconds limit) const;

    sigset_t mask, before;
};

/// The rank processes of one host in one generation (start of the job), until the last one has ended.
class RankProcesses {
public:
    /// Starts the processes, with signal mask `held.before`. `board`: where they report progress, or nullptr; `best`:
    /// the newest step that any generation has finished.
    RankProcesses(const LaunchSpec& spec, const Job& shared, const SignalsHeld& held, Board* board = nullptr,
                  int64_t best = 0);
    /// Kills and reaps the processes that still run.
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;

    bool any() const;
    /// Handles a signal that this process received.
    void asked(int signal);
    /// Reaps ranks that have ended, and kills ranks that have not ended in time.
    void look();
    /// Ends the ranks as if one had failed. `grace_ms`: time before they are killed.
    void end(int grace_ms);
    /// Whether a killed rank does not end, since the system blocks it, for example in a disk wait.
    bool stuck() const;
    /// The launcher's exit code, once all ranks have ended.
    int code() const;
    /// How each rank ended, in the order of their ends.
    const std::vector<RankEnd>& ends() const { return ends_; }
    /// Returns a rank that has waited for a disk at every call for at least `seconds`; nullopt if there is none.
    /// `moved`: steps have finished since the last call, so that no rank waits.
    std::optional<int64_t> waits_for_disk(double seconds, bool moved);
    /// Ends the ranks if every running one was stopped (SIGSTOP) at each call for `silence`, so that no rank can report
    /// the others. After a pause between calls, counts again: this process was stopped, too.
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
    Pipe lifeline_;  ///< pipe that ranks inherit, to learn of the end of this process
    std::vector<Child> children_;
    std::vector<RankEnd> ends_;
    std::optional<Clock::time_point> deadline_, killed_, stopped_since_, looked_;
    std::optional<int> at_once_;  ///< set by a signal: exit code whatever the ranks' codes are
    int code_ = 0;
    bool interrupted_ = false, stopping_ = false, told_stuck_ = false;
};

}  // namespace orrery
