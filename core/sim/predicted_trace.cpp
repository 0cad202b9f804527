#include "sim/predicted_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <vector>

#include "base/text.h"
#include "trace/plan_slices.h"

namespace orrery {
namespace {

constexpr const char* step_lane = "step";

/// Makes the trace slices of an actor (simulated rank), for each rank that the actor represents.
class ActorTrace {
public:
    ActorTrace(const Plan& plan, const Simulated& run, size_t actor)
        : plan_(plan), class_(plan.classes[static_cast<size_t>(run.actors[actor].of_class)]) {
        for (const SimulatedItem& item :
             std::ranges::equal_range(run.items, static_cast<int>(actor), {}, &SimulatedItem::actor))
            items_.push_back(&item);
        std::map<std::string, int> lanes;
        for (const SimulatedItem* item : items_) {
            places_[position_of(class_, item->first)] = item;
            if (names_.count(item->lane) > 0) continue;
            const Instruction& i = class_.stream[static_cast<size_t>(item->first.index)];
            const std::string axis = i.axis == none ? PlanSlices::compute_lane : plan.mesh.axis(i.axis).name;
            const int number = ++lanes[axis];
            names_[item->lane] = number == 1 ? axis : fmt::format("{} {}", axis, number);
        }
    }

    int64_t bars() const { return static_cast<int64_t>(items_.size()) * 2; }

    std::vector<TraceSlice> slices(PlanSlices& all, int64_t rank) const {
        std::vector<TraceSlice> made;
        double computed = 0;
        for (const SimulatedItem* item : items_) {
            TraceSlice slice = all.of(rank, item->first);
            slice.lane = names_.at(item->lane);
            slice.start = item->start;
            slice.duration = item->end - item->start;
            if (item->lane == 0) {
                add_wait(made, all, rank, *item, computed);
                computed = item->end;
            }
            made.push_back(std::move(slice));
        }
        // The messages of a group start together, and the longest one is drawn around the others.
        std::stable_sort(made.begin(), made.end(), [](const TraceSlice& a, const TraceSlice& b) {
            return a.start != b.start ? a.start < b.start : a.duration > b.duration;
        });
        return made;
    }

private:
    /// Adds a slice for the idle time of the compute lane before an item, named after the item waited for last.
    void add_wait(std::vector<TraceSlice>& made, const PlanSlices& all, int64_t rank, const SimulatedItem& item,
                  double since) const {
        if (item.start <= since) return;
        const SimulatedItem* last = nullptr;
        for (const int wait : class_.stream[static_cast<size_t>(item.first.index)].waits) {
            const auto found = places_.find(position_of(class_, waited_for(class_, item.first, wait)));
            if (found != places_.end() && (!last || found->second->end > last->end)) last = found->second;
        }
        if (!last || last->end <= since) return;
        TraceSlice slice = all.wait(rank, item.first, last->first);
        slice.start = since;
        slice.duration = item.start - since;
        made.push_back(std::move(slice));
    }

    const Plan& plan_;
    const RankClass& class_;
    std::vector<const SimulatedItem*> items_;
    std::map<int64_t, const SimulatedItem*> places_;
    std::map<int, std::string> names_;
};

}  // namespace

int64_t write_trace(const Plan& plan, const Simulated& run, const std::string& cluster, std::ostream& out,
                    int64_t most_bars) {
    assert(run.ranks_of.size() == run.actors.size());
    std::vector<ActorTrace> actors;
    int64_t bars = 0;
    for (size_t actor = 0; actor < run.actors.size(); ++actor) {
        actors.emplace_back(plan, run, actor);
        bars += actors.back().bars() * static_cast<int64_t>(run.ranks_of[actor].size());
    }
    const bool whole = bars <= most_bars;
    TraceWriter writer(out, {{"program", plan.program.name},
                             {"mesh", plan.mesh.text()},
                             {"cluster", cluster},
                             {"ranks", whole ? "all" : "one of those that do alike"},
                             {"made by", "orrery simulate"}});
    std::vector<std::pair<int64_t, size_t>> ranks;
    for (size_t actor = 0; actor < actors.size(); ++actor)
        for (const int64_t rank : run.ranks_of[actor])
            if (whole || rank == run.ranks_of[actor].front()) ranks.emplace_back(rank, actor);
    std::sort(ranks.begin(), ranks.end());
    PlanSlices slices(plan);
    int64_t written = 0;
    for (const auto& [rank, actor] : ranks) {
        const auto others = static_cast<int64_t>(run.ranks_of[actor].size()) - 1;
        writer.process(rank, whole || others == 0
                                 ? fmt::format("rank {}, predicted", rank)
                                 : fmt::format("rank {}, predicted, and {} others like it", rank, count_text(others)));
        writer.lane(rank, step_lane);
        writer.lane(rank, PlanSlices::compute_lane);
        writer.slice({rank, step_lane, "predicted step", "step", 0, run.step_s});
        const std::vector<TraceSlice> made = actors[actor].slices(slices, rank);
        for (const TraceSlice& slice : made) writer.slice(slice);
        written += static_cast<int64_t>(made.size()) + 1;
    }
    writer.finish();
    return written;
}

}  // namespace orrery
