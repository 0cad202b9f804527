#include "sim/round_times.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"

namespace orrery {
namespace {

/// The mean of a time over all ranks.
template <class Time>
double mean_of(const Simulated& run, const Time& time) {
    double sum = 0, ranks = 0;
    for (const ActorTime& actor : run.actors) {
        sum += time(actor) * static_cast<double>(actor.ranks);
        ranks += static_cast<double>(actor.ranks);
    }
    return ranks > 0 ? sum / ranks : 0;
}

std::map<AxisId, double> mean_exposed(const Simulated& run) {
    std::map<AxisId, double> all;
    for (const ActorTime& actor : run.actors)
        for (const auto& [axis, seconds] : actor.exposed) all[axis] = 0;
    for (auto& [axis, seconds] : all)
        seconds = mean_of(run, [axis = axis](const ActorTime& actor) {
            const auto found = actor.exposed.find(axis);
            return found == actor.exposed.end() ? 0.0 : found->second;
        });
    return all;
}

}  // namespace

std::string RoundTimes::text(const Compiled& compiled, double mean_s) const {
    if (programs.empty()) return "";
    std::vector<std::string> all;
    for (const auto& [name, seconds] : programs) all.push_back(fmt::format("{} {}", name, seconds_text(seconds)));
    return fmt::format("round       {}: {}; step {} on average, max {}\n", compiled.round.text(), join(all, ", "),
                       seconds_text(mean_s), seconds_text(peak_s));
}

RoundTimes add_round(Simulated& run, const Compiled& compiled, const std::function<Simulated(size_t)>& simulated) {
    RoundTimes times;
    if (compiled.round.plain()) return times;
    const std::vector<const CompiledProgram*> programs = round_programs(compiled);
    const std::vector<double> runs = compiled.round.runs_per_step();
    std::vector<double> seconds(programs.size(), 0.0);
    seconds[0] = run.step_s;
    run.step_s *= runs[0];
    for (ActorTime& actor : run.actors) {
        actor.computing *= runs[0];
        actor.communicating *= runs[0];
        actor.waiting *= runs[0];
        for (auto& [axis, exposed] : actor.exposed) exposed *= runs[0];
    }
    for (size_t i = 1; i < programs.size(); ++i) {
        if (!programs[i]) continue;
        const Simulated other = simulated(i);
        seconds[i] = other.step_s;
        run.step_s += runs[i] * other.step_s;
        const double computing = mean_of(other, [](const ActorTime& actor) { return actor.computing; });
        const double communicating = mean_of(other, [](const ActorTime& actor) { return actor.communicating; });
        const double waiting = mean_of(other, [](const ActorTime& actor) { return actor.waiting; });
        const std::map<AxisId, double> exposed = mean_exposed(other);
        for (ActorTime& actor : run.actors) {
            actor.computing += runs[i] * computing;
            actor.communicating += runs[i] * communicating;
            actor.waiting += runs[i] * waiting;
            for (const auto& [axis, part] : exposed) actor.exposed[axis] += runs[i] * part;
        }
    }
    for (size_t i = 0; i < programs.size(); ++i)
        if (programs[i]) times.programs.emplace_back(compiled.round.names()[i], seconds[i]);
    times.peak_s = compiled.round.peak(seconds);
    return times;
}

}  // namespace orrery
