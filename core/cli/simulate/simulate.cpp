#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "base/files/result_file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/what_if.h"
#include "draw/picture.h"
#include "run/control/job.h"
#include "sim/predicted_trace.h"

namespace orrery {
namespace {

constexpr double drawn_unit_s = 1e-9;

/// Returns for each pipeline rank the simulated actor with the shortest time of waiting, which sets its pace.
std::vector<int> shown_actors(const Plan& plan, const Simulated& run) {
    std::vector<int> shown(plan.schedule.ranks.size(), none);
    for (size_t actor = 0; actor < run.actors.size(); ++actor) {
        int& best = shown[static_cast<size_t>(plan.classes[static_cast<size_t>(run.actors[actor].of_class)].stage)];
        if (best == none || run.actors[actor].waiting < run.actors[static_cast<size_t>(best)].waiting)
            best = static_cast<int>(actor);
    }
    return shown;
}

/// Returns the fragments over time: a row for each pipeline rank, of the actor that `shown` names for it.
Timeline timeline_of(const Plan& plan, const Simulated& run, const std::vector<int>& shown) {
    Timeline timeline;
    timeline.ranks.resize(shown.size());
    timeline.busy.resize(shown.size());
    const auto units = [&](double s) { return static_cast<int64_t>(std::llround(s / drawn_unit_s)); };
    for (const SimulatedFragment& f : run.fragments) {
        const int stage = plan.classes[static_cast<size_t>(run.actors[static_cast<size_t>(f.actor)].of_class)].stage;
        const auto row = static_cast<size_t>(stage);
        if (shown[row] != f.actor) continue;
        timeline.ranks[row].push_back(
            {f.fragment, plan.schedule.stage_of(row, f.fragment.chunk), units(f.start), units(f.end)});
        timeline.busy[row] += units(f.end) - units(f.start);
    }
    for (const auto& slots : timeline.ranks) timeline.peak.push_back(activation_peak(slots));
    timeline.makespan = units(run.step_s);
    return timeline;
}

/// Returns what the shown actors do besides their fragments, with the same axes for all.
std::vector<RankActivity> activity_of(const Plan& plan, const Simulated& run, const std::vector<int>& shown) {
    std::map<std::pair<int, AxisId>, const SimulatedLane*> lanes;
    std::set<AxisId> axes;
    for (const SimulatedLane& lane : run.lanes) {
        lanes[{lane.actor, lane.axis}] = &lane;
        if (lane.axis != none && !lane.busy.empty()) axes.insert(lane.axis);
    }
    const auto in_units = [](Intervals times) {
        for (auto& [begin, end] : times) {
            begin /= drawn_unit_s;
            end /= drawn_unit_s;
        }
        return times;
    };
    std::vector<RankActivity> all;
    for (const int actor : shown) {
        const ActorTime& time = run.actors[static_cast<size_t>(actor)];
        RankActivity& made = all.emplace_back();
        made.rank = time.rank;
        made.computing = time.computing / run.step_s;
        made.waiting = time.waiting / run.step_s;
        made.once = in_units(lanes.at({actor, none})->busy);
        for (const AxisId axis : axes) {
            RankActivity::Lane& lane = made.lanes.emplace_back(plan.mesh.axis(axis).name, Intervals{}, Intervals{});
            const auto found = lanes.find({actor, axis});
            if (found == lanes.end()) continue;
            lane.busy = in_units(found->second->busy);
            lane.exposed = in_units(found->second->exposed);
        }
    }
    return all;
}

/// Returns the lines of the report for a drawing, which does not align columns: "time: computing 61.4 %; dp ...".
std::vector<std::string> facts_of(const std::string& text) {
    std::vector<std::string> facts;
    for (const std::string& line : split(text, '\n')) {
        std::vector<std::string> words;
        for (size_t at = 0; at < line.size();) {
            const size_t end = std::min(line.size(), line.find("  ", at));
            if (end > at) words.push_back(line.substr(at, end - at));
            at = std::min(line.size(), line.find_first_not_of(' ', end));
        }
        if (words.empty()) continue;
        const std::string rest = join({words.begin() + 1, words.end()}, "; ");
        facts.push_back(rest.empty() ? words.front() : words.front() + ": " + rest);
    }
    return facts;
}

void draw(const SimulateCommand& command, const Plan& plan, const Simulated& run, const Prediction& predicted,
          const std::string& text) {
    const std::vector<int> shown = shown_actors(plan, run);
    Picture made = picture(plan, timeline_of(plan, run, shown), drawn_unit_s, activity_of(plan, run, shown),
                           static_cast<int64_t>(predicted.memory_limit));
    made.facts = facts_of(text);
    write_result(command.out, draw_svg(made));
}

void write_trace(const std::string& file, const Forecast& made, const Cluster& cluster) {
    std::ostringstream out;
    const int64_t bars = write_trace(priced_step(made.compiled), made.run, cluster.name, out);
    write_result(file, out.view());
    std::fprintf(stderr, "trace of the predicted step: %s, %s; open it in ui.perfetto.dev\n", file.c_str(),
                 plural(bars, "bar").c_str());
}

/// Returns the report's line on tp collectives that --tp-chunks splits, which makes the simulated step hypothetical.
std::string tp_chunks_text(const SimulateCommand& command, const Forecast& made) {
    return fmt::format(
        "tp chunks   {} of {} tp collectives in {} chunks that overlap with computation: a what-if, not supported by "
        "`orrery run`\n",
        count_text(made.cut), count_text(made.cut_of), command.tp_chunks);
}

Json as_json(const Forecast& made, const SimulateCommand& command, const Plan& plan, const Cluster& cluster,
             const MeasuredKernels* measured) {
    const Prediction& p = made.prediction;
    Json json = {{"ranks", p.ranks},
                 {"step_s", p.step_s},
                 {"tokens_per_s_rank", p.tokens_per_s_rank},
                 {"mfu", p.mfu},
                 {"mfu_full", p.mfu_full},
                 {"computing", p.computing},
                 {"exposed", Json::object()},
                 {"waiting", p.waiting},
                 {"slowest_rank", p.slowest},
                 {"memory_bytes", p.memory_bytes},
                 {"memory_limit_bytes", p.memory_limit},
                 {"energy_j", p.energy_j},
                 {"price", p.price},
                 {"state_bytes", p.state_bytes},
                 {"checkpoint_s", p.checkpoint_s},
                 {"between_failures_s", p.between_failures_s},
                 {"checkpoint_interval_s", p.interval_s},
                 {"restore_s", p.restore_s},
                 {"goodput", p.goodput},
                 {"cluster", cluster.text()},
                 {"notes", measured ? measured->notes : std::vector<std::string>()},
                 {"carried", Json::object()}};
    if (p.between_failures_s > 0 && p.checkpoint_s <= 0) json["goodput"] = nullptr;  // storage bandwidth is unknown
    for (const auto& [axis, share] : p.exposed) json["exposed"][axis] = share;
    const StepSpread& spread = p.spread;
    json["step_s_low"] = spread.low * p.step_s;
    json["step_s_high"] = spread.high * p.step_s;
    json["step_s_interval_from"] = {{"published_runs", spread.rows}, {"software", nullptr}};
    if (!spread.software.empty()) json["step_s_interval_from"]["software"] = spread.software;
    json["software"] = {{"name", made.software}, {"differences", made.differences}};
    if (command.tp_chunks > 0)
        json["tp_chunks"] = {{"chunks", command.tp_chunks}, {"cut", made.cut}, {"of", made.cut_of}, {"runs", false}};
    if (command.imbalance > 0) json["imbalance"] = command.imbalance;
    if (command.tokens > 0) json["training"] = training_json(terms_of(p, command.tokens), p.step_s);
    if (!made.sources.empty()) json["kernels"] = {{"tables", command.tables}, {"sources", made.sources}};
    if (!made.compiled.capacities.empty()) json["capacity"] = made.compiled.capacities.front();
    if (!made.round.programs.empty())
        json["round"] = {{"text", made.compiled.round.text()},
                         {"program_s", std::map(made.round.programs.begin(), made.round.programs.end())},
                         {"peak_step_s", made.round.peak_s}};
    for (const auto& [what, how] : made.run.carried)
        json["carried"][plan.mesh.axis(what.first).name + " " + what.second] = how;
    return json;
}

}  // namespace

int simulate_command(const ScriptCommand& given, const SimulateCommand& command) {
    if (given.script_help) return show_options(given, Job{});
    if (command.cluster.empty() && !command.trace.empty())
        throw Error("--trace needs --cluster: it traces the ranks of a simulated cluster\n  add --cluster FILE");
    if (command.cluster.empty()) return what_if_command(given, command);
    if (!command.trace.empty() && (command.tp_chunks > 0 || command.software != "orrery"))
        throw Error(
            fmt::format("--trace and {} cannot be combined: the trace shows the plan that `orrery run` "
                        "executes\n  leave one of them out",
                        command.tp_chunks > 0 ? "--tp-chunks" : "--software"));
    require_svg(command.out);
    if (!command.trace.empty()) require_writable("--trace", command.trace);
    const Cluster cluster = read_cluster(command.cluster, command.cluster_nodes);
    const std::optional<MeasuredKernels> measured = measured_kernels(cluster, command);
    const Forecast made = forecast(given, cluster, command, measured ? &*measured : nullptr);
    const Plan& plan = priced_step(made.compiled);
    std::string told =
        text(made.prediction, fmt::format("{} on {}: {}, {} ranks", made.compiled.name, cluster.name,
                                          plan.mesh.with_microbatches(1).text(), count_text(made.prediction.ranks)));
    if (command.tokens > 0)
        told +=
            fmt::format("training    {}\n", text(terms_of(made.prediction, command.tokens), made.prediction.step_s));
    told += fmt::format("software    {}\n", made.software);
    for (const std::string& line : made.differences) told += fmt::format("            {}\n", line);
    if (command.tp_chunks > 0) told += tp_chunks_text(command, made);
    told += made.round.text(made.compiled, made.prediction.step_s);
    told += capacity_line(made.compiled) + made.loads;
    if (measured)
        for (const auto* const lines : {&measured->notes, &made.sources})
            for (const std::string& line : *lines)
                told += fmt::format("{:<12}{}\n", &line == &measured->notes.front() ? "kernels" : "", line);
    if (command.json)
        std::printf("%s\n", as_json(made, command, plan, cluster, measured ? &*measured : nullptr).dump(2).c_str());
    else
        std::printf("%smapping     %s\ncluster     %s\n", told.c_str(), made.mapping.c_str(),
                    join(split(cluster.text(), '\n'), "; ").c_str());
    if (!command.out.empty()) draw(command, plan, made.run, made.prediction, told);
    if (!command.trace.empty()) write_trace(command.trace, made, cluster);
    require_memory(made.prediction);
    return 0;
}

}  // namespace orrery
