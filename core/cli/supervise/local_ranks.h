#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "cli/supervise/board.h"
#include "cli/supervise/event_log.h"
#include "cli/supervise/rank_processes.h"

namespace orrery {

/// Starts and reaps this host's ranks, one generation (start of the job) after the other.
class LocalRanks {
public:
    /// `spec` must outlive this object; its functions `gone` and `joined` are called in each generation.
    LocalRanks(const LaunchSpec& spec, const SignalsHeld& held, double disk_timeout_s)
        : spec_(spec), held_(held), disk_timeout_s_(disk_timeout_s) {}

    /// Starts the ranks of `job`, which has the generation's number and port. `best`: the newest step that any
    /// generation has finished.
    void start(const Job& job, int64_t best);
    bool running() const { return ranks_ != nullptr; }
    RankProcesses* ranks() { return ranks_.get(); }
    /// Reaps ranks that have ended. Once the last one is reaped, returns why the ranks ended.
    std::optional<Loss> look();
    /// The newest step that this host's first rank has finished; 0: none.
    int64_t step();
    /// The step that this host's first rank has resumed from; 0: none, or state not yet loaded.
    int64_t resumed() { return board_ ? board_->of(0).resumed.load() : 0; }
    bool began() { return board_ && board_->of(0).began_ns > 0; }
    const GenerationTimes& times() const { return times_; }

private:
    void look_at_disks();

    const LaunchSpec& spec_;
    const SignalsHeld& held_;
    const double disk_timeout_s_;
    std::unique_ptr<Board> board_;
    std::unique_ptr<RankProcesses> ranks_;
    GenerationTimes times_;
    int64_t memory_kills_ = 0, looked_ns_ = 0, disk_step_ = 0;
};

/// Number of processes that the system has killed on this host for lack of memory since boot; 0: unknown.
int64_t memory_kills();

}  // namespace orrery
