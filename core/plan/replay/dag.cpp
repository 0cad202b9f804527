#include "plan/replay/dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>

#include "orrery/error.h"

namespace orrery {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

/// A node while the graph is made.
struct Draft {
    Amounts amounts;
    std::vector<int> before;
    int actor = none;  ///< none: it has no place in one lane of one actor
    int lane = 0;
    int place = 0;      ///< in its lane
    int after = 0;      ///< how many wait for it
    int merged = none;  ///< it has become part of this one
};

/// Makes the drafts of a view, in an order in which predecessors may come later.
class Drafts {
public:
    Drafts(const ReplayView& view, const std::function<Amounts(int)>& cost)
        : view_(view), cost_(cost), before_(before_in_lanes(view)) {
        for (const ReplayItem& item : view.items) lanes_ = std::max(lanes_, item.lane + 1);
        begin_.assign(view.items.size(), none);
        end_ = begin_;
        for (int i = 0; i < view.size(); ++i) place(i);
        for (int i = 0; i < view.size(); ++i) link(i);
    }
    /// With one behind the actor's own, where the host waits.
    int lanes() const { return lanes_ + 1; }
    std::vector<Draft> drafts;

private:
    using Kind = ReplayItem::Kind;

    int fresh(int actor, int lane) {
        Draft draft;
        if (lane != none) draft.actor = actor, draft.lane = lane;
        drafts.push_back(std::move(draft));
        return static_cast<int>(drafts.size()) - 1;
    }

    void place(int i) {
        const ReplayItem& item = view_.at(i);
        if (item.kind == Kind::work) {
            begin_[at(i)] = end_[at(i)] = fresh(item.actor, item.lane);
            drafts.back().amounts = cost_(i);
        } else if (item.kind == Kind::meet) {
            place_meeting(i);
        } else {
            place_message(i);
        }
    }

    /// The n-th item of each member is one draft.
    void place_meeting(int i) {
        const ReplayItem& item = view_.at(i);
        std::vector<int>& all = meetings_[item.channel];
        const size_t number = met_[{item.channel, item.actor}]++;
        if (number == all.size()) {
            all.push_back(fresh(none, none));
            drafts.back().amounts = cost_(i);
        }
        begin_[at(i)] = end_[at(i)] = all[number];
    }

    /// The n-th send of a channel and its n-th receive are one draft, between the begin and the end of the group of
    /// each.
    void place_message(int i) {
        const ReplayItem& item = view_.at(i);
        assert(view_.channels[at(item.channel)] == 0);
        const auto [known, first] = groups_.try_emplace(item.group == none ? -1 - i : item.group);
        if (first) {
            const bool one_lane = item.group == none || starts_at_once(item.group);
            known->second = {fresh(item.actor, one_lane ? item.lane : none), none};
            known->second.second = fresh(item.actor, one_lane ? item.lane : none);
            drafts.back().before.push_back(known->second.first);
        }
        const auto [opens, closes] = known->second;
        const bool sends = item.kind == Kind::send;
        auto& [sent, received] = channels_[item.channel];
        std::vector<int>&mine = sends ? sent : received, &theirs = sends ? received : sent;
        const size_t number = mine.size();
        mine.push_back(number < theirs.size() ? theirs[number] : fresh(none, none));
        Draft& message = drafts[at(mine.back())];
        if (sends) message.amounts = cost_(i);
        begin_[at(i)] = opens;
        if (item.group != none && !starts_at_once(item.group)) {
            begin_[at(i)] = fresh(none, none);
            drafts.back().before.push_back(opens);
        }
        drafts[at(mine.back())].before.push_back(begin_[at(i)]);
        drafts[at(closes)].before.push_back(mine.back());
        end_[at(i)] = closes;
    }

    /// All its items are behind one of their lane.
    bool starts_at_once(int group) const {
        const std::vector<int>& items = view_.groups[at(group)];
        return std::all_of(items.begin(), items.end(), [&](int i) {
            return view_.at(i).lane == view_.at(items[0]).lane && before_[at(i)] == before_[at(items[0])];
        });
    }

    void link(int i) {
        const ReplayItem& item = view_.at(i);
        if (item.actor != actor_) actor_ = item.actor, host_ = none;
        const int* const hold = view_.holds.data() + view_.hold_first[at(i)];
        const int* const hold_end = view_.holds.data() + view_.hold_first[at(i) + 1];
        if (item.held != none || hold != hold_end) {
            const int waits = fresh(item.actor, lanes_);
            if (host_ != none) drafts[at(waits)].before.push_back(host_);
            if (item.held != none) drafts[at(waits)].before.push_back(end_[at(item.held)]);
            for (const int* h = hold; h != hold_end; ++h) drafts[at(waits)].before.push_back(end_[at(*h)]);
            host_ = waits;
        }
        const bool message = item.kind == Kind::send || item.kind == Kind::receive;
        const int issued = message ? groups_.at(item.group == none ? -1 - i : item.group).first : begin_[at(i)];
        if (host_ != none) drafts[at(issued)].before.push_back(host_);
        for (int w = view_.wait_first[at(i)]; w < view_.wait_first[at(i) + 1]; ++w)
            drafts[at(issued)].before.push_back(end_[at(view_.waits[at(w)])]);
        if (before_[at(i)] != none) drafts[at(begin_[at(i)])].before.push_back(end_[at(before_[at(i)])]);
    }

    const ReplayView& view_;
    const std::function<Amounts(int)>& cost_;
    const std::vector<int> before_;  ///< by item
    int lanes_ = 0;
    std::vector<int> begin_, end_;  ///< by item: the draft that begins with it, and the one that ends with it
    std::map<int, std::vector<int>> meetings_;
    std::map<std::pair<int, int>, size_t> met_;                              ///< by meeting and actor: so far
    std::map<int, std::pair<std::vector<int>, std::vector<int>>> channels_;  ///< sends, receives
    std::map<int, std::pair<int, int>> groups_;                              ///< a message alone: -1 - item
    int actor_ = none;
    int host_ = none;  ///< until when the actor's host is held up
};

/// An order in which predecessors come first (Kahn). Throws where there is none: the view would hang.
std::vector<int> ordered(const std::vector<Draft>& drafts) {
    std::vector<int> open(drafts.size(), 0), first(drafts.size() + 1, 0), order;
    for (const Draft& draft : drafts)
        for (const int b : draft.before) ++first[at(b) + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<int> after(at(first.back())), next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < drafts.size(); ++i) {
        open[i] = static_cast<int>(drafts[i].before.size());
        for (const int b : drafts[i].before) after[at(next[at(b)]++)] = static_cast<int>(i);
        if (open[i] == 0) order.push_back(static_cast<int>(i));
    }
    for (size_t done = 0; done < order.size(); ++done) {
        const auto node = at(order[done]);
        for (int a = first[node]; a < first[node + 1]; ++a)
            if (--open[at(after[at(a)])] == 0) order.push_back(after[at(a)]);
    }
    if (order.size() != drafts.size())
        throw Error(fmt::format("the step never ends: {} of {} parts wait for each other", drafts.size() - order.size(),
                                drafts.size()),
                    Fault::failed);
    return order;
}

/// Drops predecessors that others of the same actor come behind.
void drop_known(std::vector<Draft>& drafts, const std::vector<int>& order, int actors, int lanes) {
    const size_t width = at(lanes);
    std::vector<std::vector<int>> places(at(actors), std::vector<int>(width, 0));
    std::vector<int> known(drafts.size() * width, none);  // of the own actor: the last of each lane that is done before
    for (const int id : order) {
        Draft& draft = drafts[at(id)];
        if (draft.actor == none) continue;
        draft.place = places[at(draft.actor)][at(draft.lane)]++;
        int* const mine = known.data() + at(id) * width;
        const auto own = [&](int b) { return drafts[at(b)].actor == draft.actor; };
        for (const int b : draft.before) {
            if (!own(b)) continue;
            const int* const theirs = known.data() + at(b) * width;
            for (size_t lane = 0; lane < width; ++lane) mine[lane] = std::max(mine[lane], theirs[lane]);
        }
        std::erase_if(draft.before, [&](int b) { return own(b) && mine[drafts[at(b)].lane] >= drafts[at(b)].place; });
        for (const int b : draft.before)
            if (own(b)) mine[drafts[at(b)].lane] = std::max(mine[drafts[at(b)].lane], drafts[at(b)].place);
    }
    for (Draft& draft : drafts) {
        std::sort(draft.before.begin(), draft.before.end());
        draft.before.erase(std::unique(draft.before.begin(), draft.before.end()), draft.before.end());
        for (const int b : draft.before) ++drafts[at(b)].after;
    }
}

/// Joins what follows each other without a choice.
void join(std::vector<Draft>& drafts, const std::vector<int>& order) {
    for (const int id : order) {
        Draft& draft = drafts[at(id)];
        for (int& b : draft.before)
            if (drafts[at(b)].merged != none) b = drafts[at(b)].merged;
        if (draft.before.size() != 1) continue;
        Draft& only = drafts[at(draft.before[0])];
        if (only.after != 1) continue;
        for (const auto& [price, times] : draft.amounts) add_to(only.amounts, price, times);
        only.after = draft.after;
        draft.merged = draft.before[0];
    }
}

}  // namespace

void add_to(Amounts& all, int price, float times) {
    for (auto& [known, count] : all)
        if (known == price) return void(count += times);
    all.emplace_back(price, times);
}

Dag condensed(const ReplayView& view, const std::function<Amounts(int item)>& cost) {
    Drafts made(view, cost);
    std::vector<Draft>& drafts = made.drafts;
    const std::vector<int> order = ordered(drafts);
    drop_known(drafts, order, view.actors(), made.lanes());
    join(drafts, order);
    Dag dag;
    std::vector<int> place(drafts.size(), none);
    std::map<Amounts, int> known;
    for (const int id : order) {
        Draft& draft = drafts[at(id)];
        if (draft.merged != none) continue;
        std::sort(draft.amounts.begin(), draft.amounts.end());
        const auto [found, first] = known.try_emplace(draft.amounts, static_cast<int>(dag.durations.size()));
        if (first) dag.durations.push_back(draft.amounts);
        Dag::Node node{found->second, static_cast<int>(dag.before.size()), 0};
        for (const int b : draft.before) dag.before.push_back(place[at(b)]);
        node.last = static_cast<int>(dag.before.size());
        place[at(id)] = static_cast<int>(dag.nodes.size());
        dag.nodes.push_back(node);
    }
    return dag;
}

double Dag::play(const std::vector<double>& prices, std::vector<double>* slopes) const {
    std::vector<double> takes(durations.size(), 0), end(nodes.size(), 0);
    for (size_t d = 0; d < durations.size(); ++d)
        for (const auto& [price, times] : durations[d]) takes[d] += static_cast<double>(times) * prices[at(price)];
    std::vector<int> latest(slopes ? nodes.size() : 0, none);
    size_t last = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
        double start = 0;
        for (int b = nodes[n].first; b < nodes[n].last; ++b) {
            const auto earlier = at(before[at(b)]);
            if (end[earlier] <= start) continue;
            start = end[earlier];
            if (slopes) latest[n] = before[at(b)];
        }
        end[n] = start + takes[at(nodes[n].duration)];
        if (end[n] > end[last]) last = n;
    }
    if (slopes) slopes->assign(prices.size(), 0);
    if (nodes.empty()) return 0;
    for (int n = slopes ? static_cast<int>(last) : none; n != none; n = latest[at(n)])
        for (const auto& [price, times] : durations[at(nodes[at(n)].duration)])
            (*slopes)[at(price)] += static_cast<double>(times);
    return end[last];
}

}  // namespace orrery
