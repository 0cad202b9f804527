#include "plan/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/replay/replay.h"

namespace orrery {
namespace {

using Kind = Fragment::Kind;

/// A fragment of the whole pipeline: kind, stage, micro-batch.
using Key = std::tuple<Kind, int, int64_t>;

/// Replays a schedule: one actor per pipeline rank, one item per fragment. Messages take no time.
class Played final : public ReplayPolicy {
public:
    Played(const Schedule& schedule, const FragmentTime& time) : schedule_(schedule), time_(time) {
        int item = 0;
        for (size_t r = 0; r < schedule.ranks.size(); ++r)
            for (const Fragment& f : schedule.ranks[r].order) {
                last_stage_ = std::max(last_stage_, schedule.stage_of(r, f.chunk));
                item_of_.emplace(key(r, f), item++);
            }
        for (size_t r = 0; r < schedule.ranks.size(); ++r) {
            view_.add_actor();
            for (size_t i = 0; i < schedule.ranks[r].order.size(); ++i) {
                std::vector<int> waits;
                for (const Key& need : needs(key(r, schedule.ranks[r].order[i]))) {
                    const auto found = item_of_.find(need);
                    waits.push_back(found == item_of_.end() ? view_.size() : found->second);  // missing: never starts
                }
                view_.add({.lane = 0, .source = static_cast<int>(i)}, waits);
            }
        }
    }

    Timeline run() {
        Replay replay(view_, *this);
        replay.run();
        Timeline timeline;
        timeline.ranks.resize(schedule_.ranks.size());
        timeline.busy.resize(schedule_.ranks.size());
        for (int item = 0; item < view_.size(); ++item) {
            if (!replay.done(item)) refuse(replay);
            const size_t rank = view_.at(item).actor;
            const Fragment& f = fragment(item);
            const int64_t start = replay.started_at(item), end = replay.done_at(item);
            timeline.ranks[rank].push_back({f, schedule_.stage_of(rank, f.chunk), start, end});
            timeline.busy[rank] += end - start;
            timeline.makespan = std::max(timeline.makespan, end);
        }
        return timeline;
    }

    int64_t cost(int item) override { return time_(view_.at(item).actor, fragment(item)); }

private:
    const Fragment& fragment(int item) const {
        return schedule_.ranks[view_.at(item).actor].order[view_.at(item).source];
    }

    Key key(size_t rank, const Fragment& f) const { return {f.kind, schedule_.stage_of(rank, f.chunk), f.micro}; }

    std::vector<Key> needs(const Key& key) const {
        const auto [kind, stage, micro] = key;
        std::vector<Key> all;
        if (kind == Kind::forward && stage > 0) all.push_back({Kind::forward, stage - 1, micro});
        if (kind == Kind::backward) all.push_back({Kind::forward, stage, micro});
        if (kind == Kind::backward && stage < last_stage_) all.push_back({Kind::backward, stage + 1, micro});
        if (kind == Kind::weight) all.push_back({Kind::backward, stage, micro});
        return all;
    }

    static std::string text(const Key& k) {
        const auto [kind, stage, micro] = k;
        return fmt::format("{} of stage {}", RankSchedule{{{kind, micro, 0}}}.text(), stage);
    }

    [[noreturn]] void refuse(const Replay& replay) const {
        std::string waits;
        for (int rank = 0; rank < view_.actors(); ++rank) {
            int item = view_.begin(rank);
            while (item < view_.end(rank) && replay.done(item)) ++item;
            if (item == view_.end(rank)) continue;
            const Key k = key(rank, fragment(item));
            for (const Key& need : needs(k)) {
                const auto holder = item_of_.find(need);
                if (holder != item_of_.end() && replay.done(holder->second)) continue;
                waits += fmt::format("\n  pipeline rank {}, position {}: {} waits for {}{}", rank,
                                     view_.at(item).source, text(k), text(need),
                                     holder == item_of_.end()
                                         ? ", which no rank runs"
                                         : fmt::format(" on pipeline rank {}", view_.at(holder->second).actor));
                break;
            }
        }
        throw Error("its ranks wait for each other" + waits);
    }

    const Schedule& schedule_;
    const FragmentTime& time_;
    int last_stage_ = 0;
    std::map<Key, int> item_of_;
    ReplayView view_;
};

}  // namespace

int64_t activation_peak(const std::vector<Slot>& slots) {
    std::map<std::pair<int64_t, int>, size_t> last;
    for (size_t i = 0; i < slots.size(); ++i) last[{slots[i].fragment.micro, slots[i].fragment.chunk}] = i;
    int64_t alive = 0, peak = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
        alive += slots[i].fragment.kind == Fragment::Kind::forward;
        peak = std::max(peak, alive);
        alive -= last[{slots[i].fragment.micro, slots[i].fragment.chunk}] == i;
    }
    return peak;
}

double Timeline::bubble() const {
    int64_t all = 0;
    for (size_t r = 0; r < ranks.size(); ++r) all += idle(r);
    const double time = static_cast<double>(makespan) * static_cast<double>(ranks.size());
    return time > 0 ? static_cast<double>(all) / time : 0;
}

bool splits_weights(const Schedule& schedule) {
    return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const RankSchedule& rank) {
        return std::any_of(rank.order.begin(), rank.order.end(),
                           [](const Fragment& f) { return f.kind == Kind::weight; });
    });
}

FragmentTime unit_time(const Schedule& schedule) {
    const int64_t backward = splits_weights(schedule) ? 1 : 2;
    return [backward](int, const Fragment& f) { return f.kind == Kind::backward ? backward : 1; };
}

Timeline timeline(const Schedule& schedule, const FragmentTime& time) {
    Timeline made = Played(schedule, time).run();
    for (const auto& slots : made.ranks) made.peak.push_back(activation_peak(slots));
    return made;
}

Timeline timeline(const Schedule& schedule) { return timeline(schedule, unit_time(schedule)); }

}  // namespace orrery
