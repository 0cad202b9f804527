#include "cli/supervise/local_ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

namespace orrery {
namespace {

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Milliseconds for ranks to end if one is in a disk wait, since it cannot be killed until the disk answers.
constexpr int no_grace = 0;

constexpr int64_t look_every_ns = 500'000'000;

}  // namespace

int64_t memory_kills() {
    std::ifstream counts("/proc/vmstat");
    std::string name;
    for (int64_t count = 0; counts >> name >> count;)
        if (name == "oom_kill") return count;
    return 0;
}

void LocalRanks::start(const Job& job, int64_t best) {
    ranks_.reset();
    board_ = std::make_unique<Board>(spec_.local_ranks);
    memory_kills_ = memory_kills();
    times_ = {};
    times_.started = seconds_of(monotonic_ns());
    ranks_ = std::make_unique<RankProcesses>(spec_, job, held_, board_.get(), best);
}

int64_t LocalRanks::step() { return board_ ? board_->of(0).step.load() : 0; }

void LocalRanks::look_at_disks() {
    if (disk_timeout_s_ <= 0 || !ranks_->ends().empty()) return;
    const int64_t now = monotonic_ns(), done = step();
    if (now - looked_ns_ < look_every_ns) return;
    looked_ns_ = now;
    const auto waits = ranks_->waits_for_disk(disk_timeout_s_, std::exchange(disk_step_, done) != done);
    if (!waits) return;
    std::fprintf(stderr, "orrery: rank %lld has waited for a disk for %g s; all ranks are stopped\n",
                 static_cast<long long>(*waits), disk_timeout_s_);
    ranks_->end(no_grace);
}

std::optional<Loss> LocalRanks::look() {
    if (!ranks_) return std::nullopt;
    ranks_->look();
    if (ranks_->any()) {
        look_at_disks();
        ranks_->end_stopped(spec_.job.silence);
        if (!ranks_->stuck()) return std::nullopt;
    }
    RankTells& first = board_->of(0);
    times_.began = seconds_of(first.began_ns);
    times_.repeated = seconds_of(first.repeated_ns);
    times_.last = seconds_of(first.last_ns);
    times_.ended = seconds_of(monotonic_ns());
    Loss how;
    if (ranks_->any())
        how = {.cause = Cause::mistake,
               .step = step(),
               .text = "this host has ranks that cannot be killed: no rank may be started next to them"};
    else
        how = verdict(ranks_->ends(), step(), ranks_->code(), memory_kills() > memory_kills_);
    times_.failed = how.cause != Cause::done && how.cause != Cause::stopped;
    ranks_.reset();
    return how;
}

}  // namespace orrery
