#include "draw/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "draw/parts.h"
#include "plan/repeat.h"
#include "plan/summary.h"

namespace orrery {
namespace {

std::string size_text(const Schedule& schedule, const Timeline& timeline) {
    std::set<int> stages;
    std::set<int64_t> micros;
    for (const auto& slots : timeline.ranks)
        for (const Slot& slot : slots) {
            stages.insert(slot.stage);
            micros.insert(slot.fragment.micro);
        }
    const auto count = [](const auto& all, std::string_view what) { return plural(all.size(), what); };
    std::string text = count(stages, "stage");
    if (stages.size() != schedule.ranks.size()) text += " on " + count(schedule.ranks, "pipeline rank");
    return text + ", " + count(micros, "micro-batch");
}

std::string bubble_text(const Picture& picture) {
    const Timeline& timeline = picture.timeline;
    std::string text = fmt::format("bubble {:.1f} %", 100 * timeline.bubble());
    if (timeline.ranks.empty()) return text;
    const int64_t first = timeline.idle(0);
    for (size_t r = 1; r < timeline.ranks.size(); ++r)
        if (timeline.idle(r) != first) return text + " of the pipeline ranks' time";
    return fmt::format("{} ({} of {} idle{})", text, drawing::time_text(picture, static_cast<double>(first)),
                       drawing::time_text(picture, static_cast<double>(timeline.makespan)),
                       timeline.ranks.size() > 1 ? " on every pipeline rank" : "");
}

std::string peaks_text(const Timeline& timeline) {
    constexpr size_t most = 32;
    const auto& all = timeline.peak;
    std::vector<std::string> peaks;
    for (int64_t peak : all) peaks.push_back(std::to_string(peak));
    const std::string what = "activations held at most, in micro-batches x chunks";
    if (peaks.size() <= most)
        return fmt::format("{}{}: {}", what, peaks.size() > 1 ? ", by pipeline rank" : "", join(peaks, " "));
    return fmt::format("{}: {} on pipeline rank 0, {} on {}, from {} to {} on all", what, peaks.front(), peaks.back(),
                       peaks.size() - 1, *std::min_element(all.begin(), all.end()),
                       *std::max_element(all.begin(), all.end()));
}

void add_facts(Picture& picture) {
    picture.facts.push_back(fmt::format("makespan {}{}; {}",
                                        drawing::time_text(picture, static_cast<double>(picture.timeline.makespan)),
                                        picture.unit.empty() ? "" : " " + picture.unit, bubble_text(picture)));
    picture.facts.push_back(peaks_text(picture.timeline));
}

/// Adds facts on messages between ranks of one class: "class 0: each member of axis dp sends to member +1, 3 messages a
/// step". Classes with the same messages share a fact.
void add_shifts(Picture& picture, const Plan& plan) {
    std::map<std::tuple<AxisId, int, int>, std::vector<int64_t>> classes;  // by axis, distance and number of messages
    for (size_t k = 0; k < plan.classes.size(); ++k) {
        std::map<std::pair<AxisId, int>, int> sends;
        for (const Instruction& i : plan.classes[k].stream)
            if (i.opcode == Opcode::send && i.relative) ++sends[{i.axis, i.peer}];
        for (const auto& [to, count] : sends) classes[{to.first, to.second, count}].push_back(static_cast<int64_t>(k));
    }
    for (const auto& [what, of] : classes)
        picture.facts.push_back(fmt::format("{}: each member of axis {} sends to member +{}, {} messages a step",
                                            drawing::range_text("class", "classes", of),
                                            plan.mesh.axis(std::get<0>(what)).name, std::get<1>(what),
                                            std::get<2>(what)));
}

std::string unit_text(const Schedule& schedule) {
    return splits_weights(schedule) ? "units (F, B and W take 1)" : "units (F takes 1, B with its W 2)";
}

/// Returns times of fragments in proportion to their FLOPs, so that the smallest forward fragment takes 1000 units.
FragmentTime flops_time(const Plan& plan) {
    using Key = std::tuple<int, Fragment::Kind, int64_t, int>;
    std::map<Key, double> flops;
    for (const RankClass& c : plan.classes) {
        std::map<Key, double> mine;
        for (const Instruction& i : c.stream)
            if (i.fragment.micro >= 0)
                mine[{c.stage, i.fragment.kind, i.fragment.micro, i.fragment.chunk}] += local_flops(plan, i, c);
        for (const auto& [key, amount] : mine) flops[key] = std::max(flops[key], amount);
    }
    double least = 0;
    for (const auto& [key, amount] : flops)
        if (amount > 0 && std::get<1>(key) == Fragment::Kind::forward && (least == 0 || amount < least)) least = amount;
    std::map<Key, int64_t> times;
    for (const auto& [key, amount] : flops)
        times[key] = least > 0 ? static_cast<int64_t>(1000 * amount / least + 0.5) : 0;
    return [times](int rank, const Fragment& f) {
        const auto found = times.find({rank, f.kind, f.micro, f.chunk});
        return found == times.end() ? 0 : found->second;
    };
}

/// Whether the program is one of a round that takes no batch, so that its schedule has nothing in its fragments.
bool only_updates(const Program& program) {
    return std::ranges::all_of(program.ops, [](const Op& op) { return op.phase == Phase::update; });
}

void add_plan(Picture& made, const Plan& plan) {
    made.schedule = plan.schedule;
    made.mesh = plan.mesh.with_microbatches(1).text();
    made.title = fmt::format("{} on {}: schedule {}, {}", plan.program.name, made.mesh.empty() ? "one rank" : made.mesh,
                             plan.schedule.name, size_text(plan.schedule, made.timeline));
    if (only_updates(plan.program)) {
        made.title = fmt::format("{} on {}: no forward or backward pass", plan.program.name,
                                 made.mesh.empty() ? "one rank" : made.mesh);
        for (std::vector<Slot>& slots : made.timeline.ranks) slots.clear();
    } else {
        add_facts(made);
    }
    add_shifts(made, plan);
    for (const RankClass& c : plan.classes)
        made.memory.push_back(drawing::memory_curve(plan, c, made.timeline, made.lead));
    made.params = drawing::param_rows(plan, made.timeline);
}

}  // namespace

Picture picture(const Schedule& schedule) {
    Picture made;
    made.schedule = schedule;
    made.timeline = timeline(schedule);
    made.unit = unit_text(schedule);
    made.title = fmt::format("{}: {}", schedule.name, size_text(schedule, made.timeline));
    add_facts(made);
    return made;
}

Picture picture(const Plan& plan, bool by_flops, int64_t memory_limit) {
    if (std::any_of(plan.classes.begin(), plan.classes.end(), repeats))
        return picture(unrolled(plan), by_flops, memory_limit);
    Picture made;
    made.unit = by_flops ? "thousandths of the shortest F, by flops" : unit_text(plan.schedule);
    made.timeline = by_flops ? timeline(plan.schedule, flops_time(plan)) : timeline(plan.schedule);
    const auto makespan = static_cast<double>(made.timeline.makespan);
    made.lead = std::max(makespan * 0.04, makespan < 200 ? 0.5 : 0.0);
    made.memory_limit = memory_limit;
    add_plan(made, plan);
    return made;
}

Picture picture(const Plan& plan, Timeline timeline, double unit_s, std::vector<RankActivity> activity,
                int64_t memory_limit) {
    if (std::any_of(plan.classes.begin(), plan.classes.end(), repeats))
        return picture(unrolled(plan), std::move(timeline), unit_s, std::move(activity), memory_limit);
    Picture made;
    made.unit_s = unit_s;
    made.timeline = std::move(timeline);
    made.activity = std::move(activity);
    made.memory_limit = memory_limit;
    add_plan(made, plan);
    return made;
}

namespace drawing {

std::vector<int> stages_of(const std::vector<Slot>& slots) {
    std::map<int, int> by_chunk;
    for (const Slot& slot : slots) by_chunk[slot.fragment.chunk] = slot.stage;
    std::vector<int> stages;
    for (const auto& [chunk, stage] : by_chunk) stages.push_back(stage);
    return stages;
}

std::string row_name(const Timeline& timeline, size_t rank) {
    const std::vector<int> stages = stages_of(timeline.ranks.at(rank));
    return stages.size() == 1 ? fmt::format("stage {}", stages[0]) : fmt::format("pipeline rank {}", rank);
}

std::string range_text(std::string_view one, std::string_view many, const std::vector<int64_t>& numbers) {
    if (numbers.size() == 1) return fmt::format("{} {}", one, numbers[0]);
    const bool dense = numbers.back() - numbers.front() + 1 == std::ssize(numbers);
    if (numbers.size() == 2 && !dense) return fmt::format("{} {}, {}", many, numbers[0], numbers[1]);
    return fmt::format("{} {}{}{}", many, numbers.front(), dense ? ".." : " ... ", numbers.back());
}

std::string time_text(const Picture& picture, double time) {
    return picture.unit_s > 0 ? seconds_text(time * picture.unit_s) : count_text(std::llround(time));
}

std::vector<const MemoryCurve*> chosen_curves(const Picture& picture) {
    constexpr size_t most = 16, few = 7;
    const auto& all = picture.memory;
    std::vector<size_t> chosen = evenly(all.size(), all.size() <= most ? most : few);
    const auto fullest = std::max_element(all.begin(), all.end(),
                                          [](const MemoryCurve& a, const MemoryCurve& b) { return a.peak < b.peak; });
    const auto place = std::lower_bound(chosen.begin(), chosen.end(), static_cast<size_t>(fullest - all.begin()));
    if (!all.empty() && (place == chosen.end() || *place != static_cast<size_t>(fullest - all.begin())))
        chosen.insert(place, static_cast<size_t>(fullest - all.begin()));
    std::vector<const MemoryCurve*> curves;
    for (const size_t i : chosen) curves.push_back(&all[i]);
    return curves;
}

std::string chosen_text(size_t shown, size_t count, std::string_view what) {
    return shown == count ? ""
                          : fmt::format("{} of {}, evenly chosen", shown, plural(static_cast<int64_t>(count), what));
}

std::string letter_of(Fragment::Kind kind) {
    return kind == Fragment::Kind::forward ? "F" : kind == Fragment::Kind::backward ? "B" : "W";
}

int chunks_of(const Timeline& timeline) {
    int chunks = 1;
    for (const auto& slots : timeline.ranks)
        for (const Slot& slot : slots) chunks = std::max(chunks, slot.fragment.chunk + 1);
    return chunks;
}

}  // namespace drawing
}  // namespace orrery
