#include "run/control/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <sstream>

#include "plan/print.h"
#include "plan/summary.h"

namespace orrery {

namespace {

constexpr double least_bound_s = 30;
constexpr double slow_flops = 1e9;          // of one core and reference kernels
constexpr double slowest_share = 1.0 / 25;  // of the rate of matrix products, in a step as a whole
constexpr int64_t steps_to_know = 2;        // then the longest of them says what a step takes
constexpr double longest_steps = 5;
constexpr double slow_bytes = 50e6;
constexpr double silent_s = 1;  // four heartbeats

const Standing* find(const std::vector<Standing>& all, int64_t rank) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Standing& s) { return s.rank == rank; });
    return found == all.end() ? nullptr : &*found;
}

std::string place_of(const Position& p) {
    if (p.of == 0) return p.steps == 0 ? "before its first step" : fmt::format("between steps, after step {}", p.steps);
    return fmt::format("{} (instruction {} of {} of step {})", p.text, p.index + 1, p.of, p.steps);
}

std::string describe_culprit(const Standing& s) {
    std::string text = fmt::format("rank {}", s.rank);
    if (s.silent_s > silent_s)
        text += fmt::format(" is behind, and silent for {:.1f} s", s.silent_s);
    else
        text += fmt::format(" is behind, for {:.1f} s", s.position.here_s);
    if (!s.process.empty()) text += ": " + s.process;
    return text + "; last seen in " + place_of(s.position);
}

}  // namespace

std::string Position::encode() const {
    std::string all = fmt::format("{} {} {} {:.3f} {:.3f} {}", steps, index, of, here_s, bound_s, waits_for.size());
    for (const int64_t rank : waits_for) all += fmt::format(" {}", rank);
    return all + "\n" + text;
}

Position Position::decode(std::string_view text) {
    Position p;
    std::istringstream in{std::string(text)};
    size_t count = 0;
    in >> p.steps >> p.index >> p.of >> p.here_s >> p.bound_s >> count;
    int64_t rank = 0;
    for (size_t i = 0; i < count && in >> rank; ++i) p.waits_for.push_back(rank);
    const size_t line = text.find('\n');
    if (line != std::string_view::npos) p.text = text.substr(line + 1);
    return p;
}

std::string explain_wait(int64_t late, const std::vector<Standing>& all) {
    const Standing* waiter = find(all, late);
    if (!waiter) return fmt::format("rank {} waits too long", late);
    std::vector<int64_t> seen{late};
    std::vector<const Standing*> behind;
    for (size_t i = 0; i < seen.size(); ++i) {
        const Standing* s = find(all, seen[i]);
        const bool idle = s && (s->position.waits_for.empty() || s->silent_s > silent_s);
        if (s && idle && i > 0) behind.push_back(s);
        if (!s || idle) continue;
        for (const int64_t peer : s->position.waits_for)
            if (std::find(seen.begin(), seen.end(), peer) == seen.end()) seen.push_back(peer);
    }
    // The silent ones first, then who has been where it is for longest.
    std::stable_sort(behind.begin(), behind.end(), [](const Standing* a, const Standing* b) {
        return std::pair(a->silent_s > silent_s, a->position.here_s) >
               std::pair(b->silent_s > silent_s, b->position.here_s);
    });
    std::string text = behind.empty() ? "ranks wait for each other" : describe_culprit(*behind.front());
    text += fmt::format("; rank {} waits for {:.1f} s, longer than the bound of {:.4g} s, in {}", late,
                        waiter->position.here_s, waiter->position.bound_s, place_of(waiter->position));
    for (size_t i = 1; behind.empty() && i < std::min<size_t>(seen.size(), 8); ++i)
        if (const Standing* s = find(all, seen[i]))
            text += fmt::format("; rank {} in {}", s->rank, place_of(s->position));
    return text;
}

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
    bound_.see(p.steps, std::chrono::duration<double>(Clock::now() - made_).count());
    p.bound_s = bound_.seconds();
    if (running) {
        const RankClass& ranks = running->plan().class_of(rank_);
        const Mesh& mesh = running->plan().mesh;
        p.index = running->position();
        p.of = static_cast<int>(ranks.stream.size());
        if (p.index >= 0 && p.index < p.of) {
            const Instruction& i = ranks.stream[static_cast<size_t>(p.index)];
            p.text = describe(running->plan(), ranks, p.index);
            if (i.opcode != Opcode::kernel && i.opcode != Opcode::copy) {
                const auto group = mesh.group(rank_, i.axis);
                if (i.opcode == Opcode::send || i.opcode == Opcode::receive)
                    p.waits_for = {group.at(static_cast<size_t>(i.peer))};
                else
                    std::copy_if(group.begin(), group.end(), std::back_inserter(p.waits_for),
                                 [&](int64_t r) { return r != rank_; });
            }
        }
    }
    if (p.steps != steps_ || p.index != index_ || p.of != of_) since_ = Clock::now();
    steps_ = p.steps;
    index_ = p.index;
    of_ = p.of;
    p.here_s = std::chrono::duration<double>(Clock::now() - since_).count();
    return p;
}

}  // namespace orrery
