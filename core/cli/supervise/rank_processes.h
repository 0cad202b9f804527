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

/// Blocks stop signals and SIGCHLD in this thread and in threads that it creates later, so that take() receives them.
struct SignalsHeld {
    SignalsHeld();
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    /// Returns the next signal; 0: none within `limit`.
    int take(std::chrono::milliseconds limit) const;

    sigset_t mask, before;
};

/// This host's rank processes of one generation (start of the job), until the last one has ended.
class RankProcesses {
public:
    /// Starts the processes with the signal mask `held.before`. `board`: where ranks report progress; nullptr: nowhere.
    /// `best`: the newest step that any generation has finished.
    RankProcesses(const LaunchSpec& spec, const Job& shared, const SignalsHeld& held, Board* board = nullptr,
                  int64_t best = 0);
    /// Kills and reaps the processes that still run.
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;

    bool any() const;
    /// Asks the ranks to save and end; after a second SIGINT they are killed. `here`: this host got the signal; if
    /// another one did, it does not count as the first SIGINT.
    void asked(int signal, bool here = true);
    /// Reaps ranks that have ended, and kills ranks whose time to end is over.
    void look();
    /// Ends the ranks as if one of them had failed. `grace_ms`: time until they are killed.
    void end(int grace_ms);
    /// Whether a killed rank has still not ended, since the system blocks it, for example in a disk wait.
    bool stuck() const;
    /// The launcher's exit code, once all ranks have ended.
    int code() const;
    const std::vector<RankEnd>& ends() const { return ends_; }
    /// Returns a rank that was waiting for a disk in each call for at least `seconds`; nullopt: none. `moved`: steps
    /// were finished since the last call, so that no rank counts as waiting.
    std::optional<int64_t> waits_for_disk(double seconds, bool moved);
    /// Ends the ranks if each running one was stopped (SIGSTOP) at all calls for `silence`: no rank could then report
    /// the others. A long pause between calls restarts the time, because it means that this process was stopped, too.
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
    Pipe lifeline_;  ///< inherited by ranks: it closes when this process ends
    std::vector<Child> children_;
    std::vector<RankEnd> ends_;
    std::optional<Clock::time_point> deadline_, killed_, stopped_since_, looked_;
    std::optional<int> at_once_;  ///< exit code after a signal, whatever the exit codes of ranks are
    int code_ = 0;
    bool interrupted_ = false, interrupted_here_ = false, stopping_ = false, told_stuck_ = false;
};

}  // namespace orrery
