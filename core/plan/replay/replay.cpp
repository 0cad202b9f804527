#include "plan/replay/replay.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace orrery {

int ReplayView::add_actor() {
    first.push_back(size());
    return actors() - 1;
}

int ReplayView::add(ReplayItem item, const std::vector<int>& item_waits, const std::vector<int>& item_holds) {
    item.actor = actors() - 1;
    if (item.group != none) groups[item.group].push_back(size());
    items.push_back(item);
    waits.insert(waits.end(), item_waits.begin(), item_waits.end());
    wait_first.push_back(waits.size());
    holds.insert(holds.end(), item_holds.begin(), item_holds.end());
    hold_first.push_back(holds.size());
    return size() - 1;
}

int ReplayView::add_channel(int slots) {
    channels.push_back(slots);
    return std::ssize(channels) - 1;
}

int ReplayView::add_meeting(int members) {
    meetings.push_back(members);
    return std::ssize(meetings) - 1;
}

int ReplayView::add_group() {
    groups.emplace_back();
    return std::ssize(groups) - 1;
}

std::vector<int> before_in_lanes(const ReplayView& view) {
    std::vector<int> before(view.items.size(), none);
    std::map<std::pair<int, int>, int> last;
    for (int i = 0; i < view.size(); ++i) {
        const ReplayItem& item = view.at(i);
        if (item.lane == none) continue;
        const auto [place, fresh] = last.try_emplace({item.actor, item.lane}, i);
        if (fresh) continue;
        const int earlier = place->second;
        const bool together = item.group != none && view.at(earlier).group == item.group;
        before[i] = together ? before[earlier] : earlier;
        place->second = i;
    }
    return before;
}

Replay::Replay(const ReplayView& view, ReplayPolicy& policy)
    : view_(view),
      policy_(policy),
      state_(view.items.size(), 0),
      pending_(view.items.size(), 1),
      group_pending_(view.groups.size(), 0),
      group_unmet_(view.groups.size(), 0),
      group_end_(view.groups.size(), 0),
      start_(view.items.size(), 0),
      end_(view.items.size(), 0),
      before_(before_in_lanes(view)),
      next_(view.first),
      open_(view.channels.size()),
      meeting_(view.meetings.size()) {
    link();
}

/// Lists which items wait for each item, and counts what each needs to start: issue (of its whole group), waits, lane.
void Replay::link() {
    std::vector<int> counts(view_.items.size() + 1, 0);
    const auto each = [&](auto&& give) {
        for (int i = 0; i < view_.size(); ++i) {
            const ReplayItem& item = view_.at(i);
            const int entry = item.group == none ? 2 * i : 2 * i + 1;
            const auto [from, to] = part(view_.waits, view_.wait_first, i);
            for (const int* wait = from; wait != to; ++wait) give(*wait, entry);
            if (before_[i] != none) give(before_[i], 2 * i);
        }
    };
    each([&](int wait, int) { ++counts[wait + 1]; });
    for (size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
    after_first_ = counts;
    after_.resize(counts.back());
    each([&](int wait, int entry) {
        after_[counts[wait]++] = entry;
        const size_t item = entry / 2;
        ++(entry % 2 == 0 ? pending_[item] : group_pending_[view_.items[item].group]);
    });
    for (size_t g = 0; g < view_.groups.size(); ++g) {
        group_pending_[g] += std::ssize(view_.groups[g]);
        group_unmet_[g] = view_.groups[g].size();
    }
}

void Replay::run() {
    for (int actor = 0; actor < view_.actors(); ++actor) issue(actor);
    size_t told = 0;
    while (true) {
        for (; told < finished_.size(); ++told) complete(finished_[told]);
        finished_.clear();
        told = 0;
        const int64_t own = running_.empty() ? ReplayPolicy::never : running_.front().first;
        const int64_t open = policy_.next_end();
        if (std::min(own, open) == ReplayPolicy::never) return;
        now_ = std::min(own, open);
        if (open == now_) take_ended();
        while (!running_.empty() && running_.front().first == now_) {
            std::pop_heap(running_.begin(), running_.end(), std::greater<>());
            finished_.push_back(running_.back().second);
            running_.pop_back();
        }
    }
}

void Replay::take_ended() {
    ended_.clear();
    policy_.ended(now_, ended_);
    for (const int item : ended_) {
        const auto found = together_.find(item);
        if (found == together_.end()) {
            finish(item, now_);
            continue;
        }
        const bool message = view_.at(item).kind == ReplayItem::Kind::send;
        for (const int one : found->second) message ? settle(one, now_) : finish(one, now_);
        together_.erase(found);
    }
}

bool Replay::held(int item) const {
    if (view_.at(item).held != none && !done(view_.at(item).held)) return true;
    const auto [from, to] = part(view_.holds, view_.hold_first, item);
    return !std::all_of(from, to, [&](int hold) { return done(hold); });
}

void Replay::issue(int actor) {
    int& next = next_[actor];
    while (next < view_.end(actor) && !held(next)) {
        const int item = next++;
        freed(view_.at(item).group == none ? 2 * item : 2 * item + 1);
    }
}

void Replay::freed(int entry) {
    const int item = entry / 2;
    if (entry % 2 == 0) {
        if (--pending_[item] == 0) start(item);
        return;
    }
    const size_t group = view_.at(item).group;
    if (--group_pending_[group] > 0) return;
    for (const int member : view_.groups[group])
        if (--pending_[member] == 0) start(member);
}

void Replay::start(int item) {
    state_[item] |= has_started;
    start_[item] = now_;
    switch (view_.at(item).kind) {
        case ReplayItem::Kind::work: {
            const int64_t cost = policy_.cost(item);
            if (cost != ReplayPolicy::open_end) finish(item, now_ + cost);
            return;
        }
        case ReplayItem::Kind::send:
        case ReplayItem::Kind::receive: return exchange(item);
        case ReplayItem::Kind::meet: return meet(item);
    }
}

void Replay::exchange(int item) {
    const int channel = view_.at(item).channel;
    Open& open = open_[channel];
    (view_.at(item).kind == ReplayItem::Kind::send ? open.sends : open.receives).items.push_back(item);
    while (!open.sends.empty() && !open.receives.empty()) match(channel);
    buffer(channel);
}

void Replay::buffer(int channel) {
    Open& open = open_[channel];
    open.buffered = std::max(open.buffered, open.sends.head);
    while (open.buffered < open.sends.items.size() && open.taken < view_.channels[channel]) {
        ++open.taken;
        finish(open.sends.items[open.buffered++], now_);
    }
}

void Replay::match(int channel) {
    Open& open = open_[channel];
    const int send = open.sends.front(), receive = open.receives.front();
    policy_.met(send, receive);
    const int64_t cost = policy_.cost(send);
    const bool buffered = open.sends.head++ < open.buffered;
    ++open.receives.head;
    if (buffered) --open.taken;
    if (buffered) state_[send] |= has_met;
    if (cost == ReplayPolicy::open_end) {
        together_[send] = buffered ? std::vector<int>{receive} : std::vector<int>{send, receive};
        return;
    }
    if (!buffered) settle(send, now_ + cost);
    settle(receive, now_ + cost);
}

void Replay::meet(int item) {
    const size_t meeting = view_.at(item).channel;
    std::vector<int>& here = meeting_[meeting];
    here.push_back(item);
    if (std::ssize(here) < view_.meetings[meeting]) return;
    policy_.met_all(here);
    const int64_t cost = policy_.cost(item);
    if (cost == ReplayPolicy::open_end)
        together_[item] = std::exchange(here, {});
    else
        for (const int member : std::exchange(here, {})) finish(member, now_ + cost);
}

/// Records that a send or receive has met its partner. Items of a group are done together, when all of them have met.
void Replay::settle(int item, int64_t time) {
    state_[item] |= has_met;
    const int group = view_.at(item).group;
    if (group == none) return finish(item, time);
    int64_t& end = group_end_[group];
    end = std::max(end, time);
    if (--group_unmet_[group] > 0) return;
    for (const int member : view_.groups[group]) finish(member, end);
}

void Replay::finish(int item, int64_t time) {
    end_[item] = time;
    if (time <= now_) {
        finished_.push_back(item);
        return;
    }
    running_.emplace_back(time, item);
    std::push_heap(running_.begin(), running_.end(), std::greater<>());
}

void Replay::complete(int item) {
    state_[item] |= is_done;
    policy_.done(item);
    const auto [from, to] = part(after_, after_first_, item);
    for (const int* entry = from; entry != to; ++entry) freed(*entry);
    issue(view_.at(item).actor);
}

std::optional<int> Replay::undone_wait(int item) const {
    const auto [from, to] = part(view_.waits, view_.wait_first, item);
    const auto found = std::find_if(from, to, [&](int wait) { return !done(wait); });
    return found == to ? std::nullopt : std::optional(*found);
}

int Replay::front_of_lane(int item) const {
    const ReplayItem& last = view_.at(item);
    for (int i = view_.begin(last.actor); i < item; ++i)
        if (view_.at(i).lane == last.lane && !done(i)) return i;
    return item;
}

/// The item that blocks the group of `item`: the next to be issued, or one of the group with unfinished waits.
std::optional<int> Replay::blocked_group(int item) const {
    const int group = view_.at(item).group;
    if (group == none) return std::nullopt;
    const std::vector<int>& members = view_.groups[group];
    if (!issued(members.back())) return next(view_.at(item).actor);
    for (const int member : members)
        if (member != item && !started(member) && undone_wait(member)) return member;
    return std::nullopt;
}

std::optional<int> Replay::blocker(int item) const {
    const ReplayItem& what = view_.at(item);
    if (!issued(item)) {
        const int at = next(what.actor);
        if (view_.at(at).held != none && !done(view_.at(at).held)) return view_.at(at).held;
        if (at != item) return at;
        const auto [from, to] = part(view_.holds, view_.hold_first, item);
        const auto found = std::find_if(from, to, [&](int hold) { return !done(hold); });
        return found == to ? std::nullopt : std::optional(*found);
    }
    if (!started(item)) {
        if (const auto wait = undone_wait(item)) return *wait;
        if (const auto other = blocked_group(item)) return other;
        if (what.lane != none)
            if (const int front = front_of_lane(item); front != item) return front;
        return std::nullopt;
    }
    if (met(item) && what.group != none)
        for (const int other : view_.groups[what.group])
            if (!met(other)) return other;
    return partner(item);
}

std::vector<int> Replay::blockers(int item) const {
    const ReplayItem& what = view_.at(item);
    std::vector<int> all;
    if (issued(item) && !started(item)) {
        const auto [from, to] = part(view_.waits, view_.wait_first, item);
        std::copy_if(from, to, std::back_inserter(all), [&](int wait) { return !done(wait); });
    } else if (started(item) && what.kind == ReplayItem::Kind::meet) {
        for (int i = 0; i < view_.size(); ++i) {
            const ReplayItem& other = view_.at(i);
            const bool missing = other.kind == what.kind && other.channel == what.channel && !started(i);
            if (missing && (all.empty() || view_.at(all.back()).actor != other.actor)) all.push_back(i);
        }
    }
    if (all.empty())
        if (const auto one = blocker(item)) all.push_back(*one);
    return all;
}

/// The first item not started that could be the partner of `item`; for a meeting, of another actor.
std::optional<int> Replay::partner(int item) const {
    using Kind = ReplayItem::Kind;
    const ReplayItem& what = view_.at(item);
    if (what.kind == Kind::work) return std::nullopt;
    const Kind wanted = what.kind == Kind::send ? Kind::receive : what.kind == Kind::receive ? Kind::send : Kind::meet;
    for (int i = 0; i < view_.size(); ++i) {
        const ReplayItem& other = view_.at(i);
        const bool there = wanted != Kind::meet || other.actor != what.actor;
        if (other.kind == wanted && there && other.channel == what.channel && other.tag == what.tag && !started(i))
            return i;
    }
    return std::nullopt;
}

std::optional<int> Replay::unmet_send(int channel) const {
    const Open& open = open_[channel];
    return open.sends.empty() ? std::nullopt : std::optional(open.sends.front());
}

}  // namespace orrery
