#include "run/control/watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/seconds.h"
#include "control/wire.h"
#include "plan/access.h"
#include "plan/print.h"
#include "plan/repeat.h"
#include "plan/summary.h"

namespace orrery {

namespace {

constexpr double least_bound_s = 30;
constexpr double slow_flops = 1e9;          // FLOP/s of a device of unknown rate: one core with reference kernels
constexpr double slowest_share = 1.0 / 25;  // min fraction of its matrix rate that a step reaches
constexpr int64_t steps_to_know = 2;        // number of timed steps after which StepBound uses their times
constexpr double longest_steps = 5;
constexpr double slow_bytes = 50e6;

/// Number of instructions of a step before `here` for which `counts` returns true.
template <class Counts>
int64_t count_before(const RankClass& ranks, const Issued& here, Counts counts) {
    int64_t count = 0;
    for (int i = 0; i < std::max(here.index, ranks.repeat.end); ++i) {
        const bool repeated = i >= ranks.repeat.begin && i < ranks.repeat.end;
        const int64_t times = (i < here.index) + (repeated ? here.run : 0);
        if (times > 0 && counts(ranks.stream[static_cast<size_t>(i)])) count += times;
    }
    return count;
}

/// Sets in `p` the ranks that instruction `p.index` waits for, and the operation's name, the same on all its ranks.
void tell_partners(const RankClass& ranks, const Mesh& mesh, int64_t rank, Position& p) {
    const Issued here = issued_at(ranks, p.index);
    const Instruction& i = ranks.stream[static_cast<size_t>(here.index)];
    if (i.axis == none) return;
    const auto group = mesh.group(rank, i.axis);
    const std::string& axis = mesh.axis(i.axis).name;
    if (!is_message(i.opcode)) {
        std::copy_if(group.begin(), group.end(), std::back_inserter(p.waits_for),
                     [&](int64_t other) { return other != rank; });
        p.part = Position::Part::meets;
        const auto same = [&](const Instruction& other) { return is_collective(other.opcode) && other.axis == i.axis; };
        p.meeting = fmt::format("{} {}/{} {}", p.steps, axis, group.front(), count_before(ranks, here, same));
        return;
    }
    const int64_t own = mesh.coordinates(rank)[static_cast<size_t>(i.axis)], size = mesh.size(i.axis);
    const int peer = i.peer_of(own, size);
    const int64_t other = group.at(static_cast<size_t>(peer));
    const bool sends = i.opcode == Opcode::send;
    p.waits_for = {other};
    p.part = sends ? Position::Part::sends : Position::Part::receives;
    const auto same = [&](const Instruction& earlier) {
        return earlier.opcode == i.opcode && earlier.axis == i.axis && earlier.peer_of(own, size) == peer;
    };
    p.meeting = fmt::format("{} {}/{}>{} {}", p.steps, axis, sends ? rank : other, sends ? other : rank,
                            count_before(ranks, here, same));
}

}  // namespace

std::chrono::milliseconds generous_bound(const Compiled& compiled, double matrix_flops) {
    const double flops = std::max(slow_flops, matrix_flops * slowest_share);
    double longest = 0;
    for (const Plan* plan : compiled.plans())
        for (const ClassSummary& c : summary(*plan, wire_bytes_of(compiled)).classes) {
            double bytes = 0;
            for (const ClassSummary::Traffic& t : c.traffic) bytes += static_cast<double>(t.bytes_sent);
            longest = std::max(longest, c.flops / flops + bytes / slow_bytes);
        }
    return std::chrono::milliseconds(static_cast<int64_t>(1000 * std::max(least_bound_s, 4 * longest)));
}

void StepBound::see(int64_t steps, double now_s) {
    if (steps == steps_) return;
    if (steps_ > 0) longest_s_ = std::max(longest_s_, now_s - begun_s_);
    steps_ = steps;
    begun_s_ = now_s;
}

double StepBound::seconds() const {
    if (!learns_ || steps_ <= steps_to_know) return first_s_;
    return std::min(first_s_, std::max(least_bound_s, longest_steps * longest_s_));
}

StepWatch::StepWatch(int64_t rank, std::vector<const Executor*> executors, const StepBound& bound)
    : rank_(rank), executors_(std::move(executors)), bound_(bound) {}

void StepWatch::replace(const Executor& old, const Executor& by) {
    const std::lock_guard lock(mutex_);
    std::replace(executors_.begin(), executors_.end(), &old, &by);
    steps_before_ += old.steps_begun();
}

Position StepWatch::look() {
    const std::lock_guard lock(mutex_);
    Position p;
    p.steps = steps_before_;
    const Executor* running = nullptr;
    for (const Executor* e : executors_) {
        p.steps += e->steps_begun();
        if (e->running()) running = e;
    }
    bound_.see(p.steps, seconds_since(made_));
    p.bound_s = bound_.seconds();
    if (running) {
        const RankClass& ranks = running->plan().class_of(rank_);
        p.index = running->position();
        p.of = static_cast<int>(issues(ranks));
        if (p.index >= 0 && p.index < p.of) {
            p.text = describe(running->plan(), ranks, issued_at(ranks, p.index));
            tell_partners(ranks, running->plan().mesh, rank_, p);
        }
    }
    const auto now = Clock::now();
    if (now - looked_ >= wire::paused_from) since_ += now - looked_;
    looked_ = now;
    if (p.steps != steps_ || p.index != index_ || p.of != of_) since_ = now;
    steps_ = p.steps;
    index_ = p.index;
    of_ = p.of;
    p.here_s = seconds_since(since_);
    return p;
}

}  // namespace orrery
