#include <fmt/format.h>

#include <algorithm>

#include "drill_launchers.h"

namespace orrery::test {

using std::chrono::seconds;

namespace {

int weight(int code) { return code == 0 ? 0 : code == 75 ? 1 : code == 130 ? 2 : 3; }

}  // namespace

void HostRanks::start(Generation& generation, int64_t first, int64_t count) {
    ranks_.clear();
    ends_.clear();
    deadline_.reset();
    stopped_since_.reset();
    code_ = 0;
    interrupted_ = stopping_ = killed_ = false;
    for (int64_t i = 0; i < count; ++i) ranks_.push_back(&world_.start_rank(generation, *this, first + i));
}

bool HostRanks::any() const { return ends_.size() < ranks_.size(); }

void HostRanks::tell_gone(const Rank& rank, Cause cause, int code) {
    launcher_.gone({.cause = cause,
                    .rank = rank.number,
                    .pid = rank.process.pid,
                    .nonce = rank.process.nonce,
                    .code = code,
                    .site = "exit",
                    .text = "ended"});
}

void HostRanks::reap(Rank& rank) {
    if (!launcher_.process.runs()) return;
    const RankEnd& end = ends_.emplace_back(rank.end);
    const bool first = !deadline_, early = end.signal == 0 && end.code == 0 && !end.done;
    const int own = end.signal != 0 || early ? 1 : end.code;
    if (weight(own) == 3 && first) {
        deadline_ = world_.net.now() + grace;
        tell_gone(rank,
                  end.signal ? Cause::process
                  : early    ? Cause::early_end
                  : own == 2 ? Cause::mistake
                             : Cause::error,
                  own);
    }
    if (weight(own) > weight(code_)) code_ = own;
    if (own == 0 || weight(own) == 3 || std::exchange(stopping_, true)) return;
    for (Rank* one : ranks_) world_.signal(*one);
}

void HostRanks::asked(bool interrupts) {
    interrupted_ = interrupted_ || interrupts;
    stopping_ = true;
    for (Rank* one : ranks_) world_.signal(*one);
}

void HostRanks::end(LinkTime within) {
    if (!deadline_) deadline_ = world_.net.now() + within;
}

int HostRanks::code() const { return interrupted_ && weight(code_) < 3 ? 130 : code_; }

void HostRanks::kill_late() {
    if (!any() || killed_ || !deadline_ || world_.net.now() < *deadline_) return;
    killed_ = true;
    for (Rank* one : ranks_) {
        if (one->ended) continue;
        one->end.late = true;
        one->end.state = one->blocked ? 'D' : one->process.stopped ? 'T' : 'S';
        world_.kill(*one);
    }
}

void HostRanks::look_at_disks() {
    const int64_t limit = world_.drill.of("disk", 0);
    for (const Rank* one : ranks_)
        if (limit > 0 && ends_.empty() && !deadline_ && one->blocked &&
            world_.net.now() - *one->blocked > seconds(limit)) {
            end(LinkTime(0));
            world_.notice();
        }
}

void HostRanks::end_stopped() {
    const bool all =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank* one) { return one->ended || one->process.stopped; });
    if (!all || !any()) return stopped_since_.reset();
    if (!stopped_since_) stopped_since_ = world_.net.now();
    if (deadline_ || world_.net.now() - *stopped_since_ < world_.silence) return;
    world_.say(fmt::format("all ranks of this host have been stopped (SIGSTOP) for {} s; they are ended",
                           world_.silence.count() / 1000));
    end(LinkTime(0));
    world_.notice();
}

std::optional<Loss> HostRanks::look() {
    if (!running()) return std::nullopt;
    kill_late();
    look_at_disks();
    end_stopped();
    if (any()) return std::nullopt;
    const bool no_memory = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank* one) { return one->starved; });
    const Loss how = verdict(ends_, step(), code(), no_memory);
    world_.host_ended();
    ranks_.clear();
    return how;
}

}  // namespace orrery::test
