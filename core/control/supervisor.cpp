#include "control/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace orrery {
namespace {

constexpr int64_t checks_to_quarantine = 2;
constexpr int to_be_queued_again = 75;

/// Whether a second failure of this kind shows that a restart does not help. A lost node says nothing about the job.
bool repeats(Cause cause) { return cause != Cause::node && cause != Cause::stopped && cause != Cause::done; }

/// Whether the node may be the cause, because a rank on it failed by itself. Other causes (loss, memory, storage,
/// scripts) do not implicate the node.
bool suspect(const Loss& how) { return !how.hearsay && (how.cause == Cause::process || how.cause == Cause::hang); }

std::string at(int64_t step) { return step > 0 ? fmt::format("after step {}", step) : "before a step was finished"; }

}  // namespace

Supervisor::Supervisor(const Options& options, double now)
    : options_(options),
      slots_(static_cast<size_t>(options.nodes), -1),
      not_before_(now),
      wait_until_(now + options.wait_node_s),
      spares_from_(now + options.own_first_s) {
    for (int64_t node = 0; node < options.nodes + options.spares; ++node) nodes_[node];
    for (int64_t slot = 0; slot < options.nodes; ++slot) slots_[static_cast<size_t>(slot)] = slot;
}

Supervisor::Orders Supervisor::came(int64_t node, double now) {
    Orders orders;
    Known& known = nodes_[node];
    if (state_ == State::over || known.state != Node::absent) return orders;
    known.why = {};
    known.mistake.reset();
    check(node, now, orders);
    gather(now, orders);
    return orders;
}

Supervisor::Orders Supervisor::failed_start(int64_t node, const Loss& loss, double now) {
    Orders orders;
    const auto at = nodes_.find(node);
    if (state_ == State::over || at == nodes_.end() || at->second.state != Node::absent) return orders;
    at->second.why = "a start of it failed: " + loss.text;
    if (loss.cause == Cause::mistake) at->second.mistake = loss;
    gather(now, orders);
    return orders;
}

void Supervisor::check(int64_t node, double now, Orders& orders) {
    Known& known = nodes_[node];
    known.state = Node::checking;
    known.checked_until = now + options_.check_s;
    orders.push_back({Order::Kind::check, node});
}

Supervisor::Orders Supervisor::checked(int64_t node, Fitness found, const Message& why, double now) {
    Orders orders;
    Known& known = nodes_[node];
    if (state_ == State::over || known.state != Node::checking) return orders;
    const auto say = [&](const std::string& what) {
        orders.push_back({Order::Kind::say, node, 0, {}, 0, fmt::format("node {} {}: ", node, what) + why});
    };
    known.why = found == Fitness::fit ? "" : why;
    if (found == Fitness::fit) {
        known.state = Node::ready;
        known.failed_checks = 0;
        known.told_late = false;
    } else if (found == Fitness::late) {
        if (!std::exchange(known.told_late, true)) say("is still being checked");
        orders.push_back({Order::Kind::check, node});
    } else if (++known.failed_checks < checks_to_quarantine) {
        say("failed its check and is checked once more");
        check(node, now, orders);
    } else {
        known.state = Node::quarantined;
        if (found == Fitness::wrong)
            known.mistake = Loss{.cause = Cause::mistake, .node = node, .code = 2, .text = why};
        say("failed its checks twice and is left out");
    }
    gather(now, orders);
    return orders;
}

Supervisor::Orders Supervisor::lost(int64_t node, const Message& how, double now) {
    Orders orders;
    Known& known = nodes_[node];
    if (state_ == State::over || known.state == Node::absent) return orders;
    const bool ran = known.state == Node::running;
    if (known.state != Node::quarantined)
        known = {.state = Node::absent, .failed_checks = known.failed_checks, .why = how};
    if (ran)
        failed({.cause = Cause::node,
                .node = node,
                .code = to_be_queued_again,
                .step = best_,
                .text = "is lost (" + how + ")"},
               orders);
    settle(now, orders);
    return orders;
}

Supervisor::Orders Supervisor::step_done(int64_t step) {
    if (step <= best_) return {};
    best_ = step;
    spent_.clear();
    last_.reset();
    restarted_by_.reset();
    in_a_row_ = 0;
    return {};
}

Supervisor::Orders Supervisor::ended(int64_t node, const Loss& how, double now) {
    Orders orders;
    Known& known = nodes_[node];
    if (state_ == State::over || known.state != Node::running) return orders;
    known.state = suspect(how) ? Node::suspect : Node::ready;
    if (how.cause != Cause::done) failed(how, orders);
    // While others may still complete the job, the node stays to learn of that.
    if (known.drained && how.cause != Cause::done) leave(node, orders);
    settle(now, orders);
    return orders;
}

Supervisor::Orders Supervisor::drain(int64_t node, const Message& why, double now) {
    if (node == 0 || !options_.drains) return stop(to_be_queued_again, why, now);
    Orders orders;
    const auto at = nodes_.find(node);
    if (state_ == State::over || at == nodes_.end() || at->second.drained) return orders;
    Known& known = at->second;
    known.why = "was drained: " + why;
    if (known.state != Node::running) {
        leave(node, orders);
        gather(now, orders);
        return orders;
    }
    known.drained = true;
    if (!drained_)
        drained_ = Loss{.cause = Cause::stopped,
                        .node = node,
                        .code = to_be_queued_again,
                        .step = best_,
                        .text = "is drained (" + why + ")"};
    if (state_ == State::running) orders.push_back({Order::Kind::stop_ranks, node, options_.generation});
    return orders;
}

/// Ends the launcher of a drained node, which then counts as missing until it joins again.
void Supervisor::leave(int64_t node, Orders& orders) {
    Known& known = nodes_.at(node);
    orders.push_back({Order::Kind::leave, node, options_.generation, {}, to_be_queued_again, known.why});
    if (known.state != Node::quarantined)
        known = {.state = Node::absent, .failed_checks = known.failed_checks, .why = known.why};
}

Supervisor::Orders Supervisor::stop(int code, const Message& why, double now) {
    Orders orders;
    if (state_ == State::over) return orders;
    if (!asked_) asked_ = Loss{.cause = Cause::stopped, .code = code, .step = best_, .text = why};
    if (state_ == State::gathering) finish(code, why, orders);
    settle(now, orders);
    return orders;
}

Supervisor::Orders Supervisor::tick(double now) {
    Orders orders;
    if (state_ == State::gathering) gather(now, orders);
    return orders;
}

std::optional<double> Supervisor::next_tick() const {
    if (state_ != State::gathering) return std::nullopt;
    std::set<double> times = {not_before_, std::max(not_before_, spares_from_)};
    for (const int64_t node : slots_) times.insert(std::max(not_before_, nodes_.at(node).checked_until));
    for (const double time : times)
        if (!chosen(time).empty()) return time;
    return std::max(wait_until_, checked_until());
}

/// Returns the last time at which a running check of a slot's node is overdue; 0 when no check runs.
double Supervisor::checked_until() const {
    double last = 0;
    for (const int64_t node : slots_)
        if (const Known& known = nodes_.at(node); known.state == Node::checking)
            last = std::max(last, known.checked_until);
    return last;
}

bool Supervisor::any_running() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second.state == Node::running; });
}

/// Ranks end after the loss of a node because others report it, or because they are killed when they end too late.
Loss Supervisor::recorded(const Loss& how) const {
    const bool follows = how.cause != Cause::stopped && (how.hearsay || how.site == "late");
    return follows && why_ && why_->cause == Cause::node ? *why_ : how;
}

/// Records the cause of a generation's end. The first failure counts, because later ones are its consequences. There
/// are two exceptions: a process' own report replaces what others report about it, and a failure replaces a stop,
/// because the stop's checkpoint may be missing.
void Supervisor::failed(const Loss& how, Orders& orders) {
    const bool own = !how.hearsay && how.cause != Cause::stopped;
    const bool stopped = why_ && why_->cause == Cause::stopped;
    const bool better = own && why_ && (why_->hearsay || (stopped && how.cause != Cause::node));
    if (why_ && !better) return;
    why_ = how;
    if (better && !stopped) return;
    state_ = State::ending;
    if (how.cause == Cause::stopped) return;  // all ranks save and stop by themselves, at the same step
    orders.push_back({Order::Kind::end_ranks, -1, options_.generation});
}

/// Decides what follows once the last rank of a generation is gone.
void Supervisor::settle(double now, Orders& orders) {
    if ((state_ != State::running && state_ != State::ending) || any_running()) return;
    const Loss how = std::exchange(why_, std::nullopt).value_or(Loss{});
    if (how.cause == Cause::done) return finish(0, "done", orders);
    if (how.cause == Cause::stopped && asked_) return finish(how.code, asked_->text, orders);
    if (how.cause == Cause::stopped && drained_ && how.code == to_be_queued_again)
        return restart(*drained_, 0, now, orders);
    if (how.cause == Cause::stopped) return finish(how.code, how.text, orders);
    if (asked_) return finish(how.code == 0 ? asked_->code : how.code, how.text, orders);
    if (refuse(how, orders)) return;
    ++spent_[how.cause];
    last_ = how;
    double pause = in_a_row_ == 0 ? 0 : options_.first_pause_s;
    for (int64_t i = 1; i < in_a_row_ && pause < options_.longest_pause_s; ++i) pause *= 2;
    ++in_a_row_;
    restart(how, std::min(pause, options_.longest_pause_s), now, orders);
}

/// Starts the next generation after a pause of so many seconds, once its nodes are there and fit.
void Supervisor::restart(const Loss& how, double pause, double now, Orders& orders) {
    ++restarts_;
    restarted_by_ = how;
    not_before_ = now + pause;
    wait_until_ = now + options_.wait_node_s;
    state_ = State::gathering;
    for (auto& [node, known] : nodes_)
        if (known.drained) leave(node, orders);
    for (auto& [node, known] : nodes_)
        if (known.state == Node::suspect) {
            known.why = {};
            check(node, now, orders);
        }
    gather(now, orders);
}

/// Orders the job's end if it must not restart after a failure; returns whether it did.
bool Supervisor::refuse(const Loss& how, Orders& orders) {
    const Message what = sentence_of(how) + " " + at(how.step);
    if (how.cause == Cause::mistake || options_.restarts == 0) {
        finish(how.code, what, orders);
        return true;
    }
    if (last_ && repeats(how.cause) && same_failure(*last_, how)) {
        finish(how.code, what + ", for the second time: a restart does not help", orders);
        return true;
    }
    if (spent_[how.cause] < options_.restarts) return false;
    finish(how.code,
           what + fmt::format("; {} restart{} after the same kind of failure ({}) made no progress past step {}",
                              options_.restarts, options_.restarts == 1 ? "" : "s", text_of(how.cause), best_),
           orders);
    return true;
}

/// Returns the nodes for the next generation: each slot's previous node, otherwise a spare; empty if too few are ready.
std::vector<int64_t> Supervisor::chosen(double now) const {
    const auto ready = [&](int64_t node) { return node >= 0 && nodes_.at(node).state == Node::ready; };
    std::vector<int64_t> taken = slots_;
    for (int64_t& node : taken) {
        if (ready(node)) continue;
        // Waits for the check of the slot's own node, a few seconds, because that node has the job's files and caches.
        if (node >= 0 && nodes_.at(node).state == Node::checking && now < nodes_.at(node).checked_until) return {};
        node = -1;
        if (now < spares_from_) return {};
        for (const auto& [other, known] : nodes_)
            if (known.state == Node::ready && std::find(taken.begin(), taken.end(), other) == taken.end() &&
                std::find(slots_.begin(), slots_.end(), other) == slots_.end()) {
                node = other;
                break;
            }
        if (node < 0) return {};
    }
    return taken;
}

void Supervisor::gather(double now, Orders& orders) {
    if (state_ != State::gathering) return;
    const std::vector<int64_t> taken = chosen(now);
    if (taken.empty() && refuse_mistake(orders)) return;
    if (taken.empty()) {
        if (now >= std::max(wait_until_, checked_until()))
            finish(to_be_queued_again, missing() + fmt::format(" after {:g} s", options_.wait_node_s), orders);
        return;
    }
    if (now < not_before_) return;
    slots_ = taken;
    for (const int64_t node : taken) nodes_[node].state = Node::running;
    state_ = State::running;
    why_.reset();
    drained_.reset();
    spares_from_ = now;
    orders.push_back({Order::Kind::start, -1, ++options_.generation, taken});
}

/// Ends the job if a configuration error keeps a node from joining and no spare can replace it; returns whether it did.
bool Supervisor::refuse_mistake(Orders& orders) {
    if (options_.spares > 0) {
        const auto may_come = [&](const auto& entry) {
            const auto& [node, known] = entry;
            const bool free = std::find(slots_.begin(), slots_.end(), node) == slots_.end();
            return free && known.state != Node::absent && known.state != Node::quarantined;
        };
        if (std::any_of(nodes_.begin(), nodes_.end(), may_come)) return false;
    }
    for (const int64_t node : slots_)
        if (const Known& known = nodes_.at(node); known.mistake) {
            finish(known.mistake->code, missing(node), orders);
            return true;
        }
    return false;
}

Message Supervisor::missing(int64_t node) const {
    const Known& known = nodes_.at(node);
    if (known.state == Node::ready || known.state == Node::running) return "";
    const char* what = known.state == Node::absent     ? "is missing"
                       : known.state <= Node::checking ? "is being checked"
                                                       : "failed its checks twice";
    const Message text = fmt::format("node {} {}", node, what);
    return known.why.empty() ? text : text + " (" + known.why + ")";
}

Message Supervisor::missing() const {
    Message text;
    for (const int64_t node : slots_)
        if (const Message one = missing(node); !one.empty()) text += (text.empty() ? "" : "; ") + one;
    return text;
}

void Supervisor::finish(int code, const Message& why, Orders& orders) {
    if (state_ == State::over) return;
    state_ = State::over;
    orders.push_back({Order::Kind::finish, -1, options_.generation, {}, code, why});
}

}  // namespace orrery
