#include "plan/replay/dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>

#include "orrery/error.h"

namespace orrery {
namespace {

struct Draft {
    Amounts amounts;
    std::vector<int> before;
    int actor = none;  ///< none: the node is in no lane
    int lane = 0;
    int place = 0;  ///< index among the nodes of its lane
    int after = 0;
    int merged = none;  ///< index of the node into which it was merged
};

/// Creates draft nodes for the start and end of each item of a view, not yet in topological order.
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
    /// The number of lanes per actor, including an extra one for the waits of the host.
    int lanes() const { return lanes_ + 1; }
    std::vector<Draft> drafts;

private:
    using Kind = ReplayItem::Kind;

    int fresh(int actor, int lane) {
        Draft draft;
        if (lane != none) draft.actor = actor, draft.lane = lane;
        drafts.push_back(std::move(draft));
        return std::ssize(drafts) - 1;
    }

    void place(int i) {
        const ReplayItem& item = view_.at(i);
        if (item.kind == Kind::work) {
            begin_[i] = end_[i] = fresh(item.actor, item.lane);
            drafts.back().amounts = cost_(i);
        } else if (item.kind == Kind::meet) {
            place_meeting(i);
        } else {
            place_message(i);
        }
    }

    /// Creates the draft of a meeting (a collective). The n-th items of all its members share one.
    void place_meeting(int i) {
        const ReplayItem& item = view_.at(i);
        std::vector<int>& all = meetings_[item.channel];
        const size_t number = met_[{item.channel, item.actor}]++;
        if (number == all.size()) {
            all.push_back(fresh(none, none));
            drafts.back().amounts = cost_(i);
        }
        begin_[i] = end_[i] = all[number];
    }

    /// Creates the draft that the n-th send and the n-th receive of a channel share.
    void place_message(int i) {
        const ReplayItem& item = view_.at(i);
        assert(view_.channels[item.channel] == 0);
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
        Draft& message = drafts[mine.back()];
        if (sends) message.amounts = cost_(i);
        begin_[i] = opens;
        if (item.group != none && !starts_at_once(item.group)) {
            begin_[i] = fresh(none, none);
            drafts.back().before.push_back(opens);
        }
        drafts[mine.back()].before.push_back(begin_[i]);
        drafts[closes].before.push_back(mine.back());
        end_[i] = closes;
    }

    /// Whether all items of the group follow the same item of the same lane.
    bool starts_at_once(int group) const {
        const std::vector<int>& items = view_.groups[group];
        return std::all_of(items.begin(), items.end(), [&](int i) {
            return view_.at(i).lane == view_.at(items[0]).lane && before_[i] == before_[items[0]];
        });
    }

    void link(int i) {
        const ReplayItem& item = view_.at(i);
        if (item.actor != actor_) actor_ = item.actor, host_ = none;
        const int* const hold = view_.holds.data() + view_.hold_first[i];
        const int* const hold_end = view_.holds.data() + view_.hold_first[i + 1];
        if (item.held != none || hold != hold_end) {
            const int waits = fresh(item.actor, lanes_);
            if (host_ != none) drafts[waits].before.push_back(host_);
            if (item.held != none) drafts[waits].before.push_back(end_[item.held]);
            for (const int* h = hold; h != hold_end; ++h) drafts[waits].before.push_back(end_[*h]);
            host_ = waits;
        }
        const bool message = item.kind == Kind::send || item.kind == Kind::receive;
        const int issued = message ? groups_.at(item.group == none ? -1 - i : item.group).first : begin_[i];
        if (host_ != none) drafts[issued].before.push_back(host_);
        for (int w = view_.wait_first[i]; w < view_.wait_first[i + 1]; ++w)
            drafts[issued].before.push_back(end_[view_.waits[w]]);
        if (before_[i] != none) drafts[begin_[i]].before.push_back(end_[before_[i]]);
    }

    const ReplayView& view_;
    const std::function<Amounts(int)>& cost_;
    const std::vector<int> before_;
    int lanes_ = 0;
    std::vector<int> begin_, end_;
    std::map<int, std::vector<int>> meetings_;
    std::map<std::pair<int, int>, size_t> met_;
    std::map<int, std::pair<std::vector<int>, std::vector<int>>> channels_;
    std::map<int, std::pair<int, int>> groups_;  ///< by group (of one message: -1 - item): drafts of start and end
    int actor_ = none;
    int host_ = none;
};

/// A topological order of the drafts (Kahn). Throws Error if there is none, because the view deadlocks.
std::vector<int> ordered(const std::vector<Draft>& drafts) {
    std::vector<int> open(drafts.size(), 0), first(drafts.size() + 1, 0), order;
    for (const Draft& draft : drafts)
        for (const int b : draft.before) ++first[b + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<int> after(first.back()), next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < drafts.size(); ++i) {
        open[i] = drafts[i].before.size();
        for (const int b : drafts[i].before) after[next[b]++] = i;
        if (open[i] == 0) order.push_back(i);
    }
    for (size_t done = 0; done < order.size(); ++done) {
        const auto node = order[done];
        for (int a = first[node]; a < first[node + 1]; ++a)
            if (--open[after[a]] == 0) order.push_back(after[a]);
    }
    if (order.size() != drafts.size())
        throw Error(fmt::format("deadlock: the step never ends, {} of {} parts wait for each other",
                                drafts.size() - order.size(), drafts.size()),
                    Fault::failed);
    return order;
}

/// Removes a predecessor of a node if another predecessor of the same actor comes after it.
void drop_known(std::vector<Draft>& drafts, const std::vector<int>& order, int actors, int lanes) {
    const size_t width = lanes;
    std::vector<std::vector<int>> places(actors, std::vector<int>(width, 0));
    std::vector<int> known(drafts.size() * width, none);  // [node][lane of its actor]: last draft before it
    for (const int id : order) {
        Draft& draft = drafts[id];
        if (draft.actor == none) continue;
        draft.place = places[draft.actor][draft.lane]++;
        int* const mine = known.data() + id * width;
        const auto own = [&](int b) { return drafts[b].actor == draft.actor; };
        for (const int b : draft.before) {
            if (!own(b)) continue;
            const int* const theirs = known.data() + b * width;
            for (size_t lane = 0; lane < width; ++lane) mine[lane] = std::max(mine[lane], theirs[lane]);
        }
        std::erase_if(draft.before, [&](int b) { return own(b) && mine[drafts[b].lane] >= drafts[b].place; });
        for (const int b : draft.before)
            if (own(b)) mine[drafts[b].lane] = std::max(mine[drafts[b].lane], drafts[b].place);
    }
    for (Draft& draft : drafts) {
        std::sort(draft.before.begin(), draft.before.end());
        draft.before.erase(std::unique(draft.before.begin(), draft.before.end()), draft.before.end());
        for (const int b : draft.before) ++drafts[b].after;
    }
}

/// Merges each node into its predecessor if it is the only successor of its only predecessor.
void join(std::vector<Draft>& drafts, const std::vector<int>& order) {
    for (const int id : order) {
        Draft& draft = drafts[id];
        for (int& b : draft.before)
            if (drafts[b].merged != none) b = drafts[b].merged;
        if (draft.before.size() != 1) continue;
        Draft& only = drafts[draft.before[0]];
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
        Draft& draft = drafts[id];
        if (draft.merged != none) continue;
        std::sort(draft.amounts.begin(), draft.amounts.end());
        const auto [found, first] = known.try_emplace(draft.amounts, dag.durations.size());
        if (first) dag.durations.push_back(draft.amounts);
        Dag::Node node{found->second, static_cast<int>(dag.before.size()), 0};
        for (const int b : draft.before) dag.before.push_back(place[b]);
        node.last = dag.before.size();
        place[id] = dag.nodes.size();
        dag.nodes.push_back(node);
    }
    return dag;
}

double Dag::play(const std::vector<double>& prices, std::vector<double>* slopes) const {
    std::vector<double> takes(durations.size(), 0), end(nodes.size(), 0);
    for (size_t d = 0; d < durations.size(); ++d)
        for (const auto& [price, times] : durations[d]) takes[d] += static_cast<double>(times) * prices[price];
    std::vector<int> latest(slopes ? nodes.size() : 0, none);
    size_t last = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
        double start = 0;
        for (int b = nodes[n].first; b < nodes[n].last; ++b) {
            const auto earlier = before[b];
            if (end[earlier] <= start) continue;
            start = end[earlier];
            if (slopes) latest[n] = before[b];
        }
        end[n] = start + takes[nodes[n].duration];
        if (end[n] > end[last]) last = n;
    }
    if (slopes) slopes->assign(prices.size(), 0);
    if (nodes.empty()) return 0;
    for (int n = slopes ? static_cast<int>(last) : none; n != none; n = latest[n])
        for (const auto& [price, times] : durations[nodes[n].duration]) (*slopes)[price] += static_cast<double>(times);
    return end[last];
}

}  // namespace orrery
