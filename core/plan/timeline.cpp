#include "plan/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace orrery {
namespace {

using Kind = Fragment::Kind;

/// A fragment of the whole pipeline: kind, stage, micro-batch.
using Key = std::tuple<Kind, int, int64_t>;

/// Runs the ranks' orders side by side, each as far as it can go.
class Greedy {
public:
    Greedy(const Schedule& schedule, const FragmentTime& time) : schedule_(schedule), time_(time) {
        timeline_.ranks.resize(schedule.ranks.size());
        timeline_.busy.resize(schedule.ranks.size());
        for (size_t r = 0; r < schedule.ranks.size(); ++r)
            for (const Fragment& f : schedule.ranks[r].order) {
                last_stage_ = std::max(last_stage_, schedule.stage_of(static_cast<int>(r), f.chunk));
                rank_of_.emplace(key(r, f), r);
            }
    }

    Timeline run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t r = 0; r < schedule_.ranks.size(); ++r)
                while (advance(r)) moved = true;
        }
        for (size_t r = 0; r < schedule_.ranks.size(); ++r)
            if (next(r)) refuse();
        return std::move(timeline_);
    }

private:
    Key key(size_t rank, const Fragment& f) const {
        return {f.kind, schedule_.stage_of(static_cast<int>(rank), f.chunk), f.micro};
    }

    const Fragment* next(size_t rank) const {
        const size_t at = timeline_.ranks[rank].size();
        const auto& order = schedule_.ranks[rank].order;
        return at < order.size() ? &order[at] : nullptr;
    }

    /// What must have ended before a fragment starts.
    std::vector<Key> needs(const Key& key) const {
        const auto [kind, stage, micro] = key;
        std::vector<Key> all;
        if (kind == Kind::forward && stage > 0) all.push_back({Kind::forward, stage - 1, micro});
        if (kind == Kind::backward) all.push_back({Kind::forward, stage, micro});
        if (kind == Kind::backward && stage < last_stage_) all.push_back({Kind::backward, stage + 1, micro});
        if (kind == Kind::weight) all.push_back({Kind::backward, stage, micro});
        return all;
    }

    bool advance(size_t rank) {
        const Fragment* fragment = next(rank);
        if (!fragment) return false;
        const Key k = key(rank, *fragment);
        auto& slots = timeline_.ranks[rank];
        int64_t start = slots.empty() ? 0 : slots.back().end;
        for (const Key& need : needs(k)) {
            const auto found = end_.find(need);
            if (found == end_.end()) return false;
            start = std::max(start, found->second);
        }
        const int64_t takes = time_(static_cast<int>(rank), *fragment);
        slots.push_back({*fragment, std::get<1>(k), start, start + takes});
        end_[k] = start + takes;
        timeline_.busy[rank] += takes;
        timeline_.makespan = std::max(timeline_.makespan, start + takes);
        return true;
    }

    static std::string text(const Key& k) {
        const auto [kind, stage, micro] = k;
        return fmt::format("{} of stage {}", RankSchedule{{{kind, micro, 0}}}.text(), stage);
    }

    [[noreturn]] void refuse() const {
        std::string waits;
        for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
            const Fragment* fragment = next(r);
            if (!fragment) continue;
            const Key k = key(r, *fragment);
            for (const Key& need : needs(k)) {
                if (end_.count(need)) continue;
                const auto holder = rank_of_.find(need);
                waits += fmt::format("\n  pipeline rank {}, place {}: {} waits for {}{}", r, timeline_.ranks[r].size(),
                                     text(k), text(need),
                                     holder == rank_of_.end() ? ", which no rank runs"
                                                              : fmt::format(" on pipeline rank {}", holder->second));
                break;
            }
        }
        throw Error("its ranks wait for each other" + waits);
    }

    const Schedule& schedule_;
    const FragmentTime& time_;
    int last_stage_ = 0;
    std::map<Key, size_t> rank_of_;
    std::map<Key, int64_t> end_;
    Timeline timeline_;
};

/// Most (micro-batch, chunk) pairs alive at once on one rank.
int64_t activation_peak(const std::vector<Slot>& slots) {
    std::map<std::pair<int64_t, int>, size_t> last;
    for (size_t i = 0; i < slots.size(); ++i) last[{slots[i].fragment.micro, slots[i].fragment.chunk}] = i;
    int64_t alive = 0, peak = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
        alive += slots[i].fragment.kind == Kind::forward;
        peak = std::max(peak, alive);
        alive -= last[{slots[i].fragment.micro, slots[i].fragment.chunk}] == i;
    }
    return peak;
}

}  // namespace

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
    Timeline made = Greedy(schedule, time).run();
    for (const auto& slots : made.ranks) made.peak.push_back(activation_peak(slots));
    return made;
}

Timeline timeline(const Schedule& schedule) { return timeline(schedule, unit_time(schedule)); }

}  // namespace orrery
