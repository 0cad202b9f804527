#include "sim/round_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "plan/opening.h"

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

/// Seconds from the start of a program until its opening is over; 0: it has none.
double opening_s(const Plan& plan, const Simulated& run) {
    std::vector<int> openings;  // by class
    for (const RankClass& c : plan.classes) openings.push_back(opening(plan.program, c));
    double end = 0;
    for (const SimulatedItem& item : run.items)
        if (item.first.index < openings[run.actors[item.actor].of_class]) end = std::max(end, item.end);
    return end;
}

/// By program: mean seconds of its opening that the programs between its sender and it hide. Negative where its message
/// waits for earlier ones, since one thread sends them all.
std::vector<double> hidden_s(const Round& round, const std::vector<double>& seconds,
                             const std::vector<double>& openings) {
    std::vector<double> arrives(seconds.size(), 0.0), hidden(seconds.size(), 0.0), runs(seconds.size(), 0.0);
    double clock = 0, free = 0;
    // The first half sends the messages that the second one waits for.
    for (int64_t step = 1; step <= 2 * round.steps(); ++step) {
        clock += seconds[round.program_of(step)];
        round.after(step, [&](size_t program) {
            clock += seconds[program];
            if (openings[program] > 0) {
                const double late = std::max(0.0, arrives[program] - (clock - seconds[program]));
                clock += late - openings[program];
                if (step > round.steps()) hidden[program] += openings[program] - late, ++runs[program];
            }
            for (size_t waits = 0; waits < openings.size(); ++waits)
                if (openings[waits] > 0 && round.senders()[waits] == static_cast<int>(program))
                    arrives[waits] = free = std::max(clock, free) + openings[waits];
        });
    }
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] /= std::max(1.0, runs[i]);
    return hidden;
}

/// Takes seconds that other programs hide from the time that an actor waits for messages over an axis, then from its
/// other times.
void hide(ActorTime& actor, AxisId axis, double seconds) {
    for (double* const part : {&actor.exposed[axis], &actor.waiting, &actor.computing}) {
        const double taken = std::min(*part, seconds);  // below 0: added to the first
        *part -= taken;
        seconds -= taken;
    }
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
    std::vector<double> seconds(programs.size(), 0.0), openings(programs.size(), 0.0);
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
        openings[i] = opening_s(programs[i]->plan, other);
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
    const std::vector<double> hidden = hidden_s(compiled.round, seconds, openings);
    for (size_t i = 0; i < programs.size(); ++i) {
        if (hidden[i] == 0) continue;
        seconds[i] -= hidden[i];
        run.step_s -= runs[i] * hidden[i];
        for (ActorTime& actor : run.actors)
            hide(actor, *programs[i]->plan.mesh.find(compiled.islands.axis), runs[i] * hidden[i]);
    }
    for (size_t i = 0; i < programs.size(); ++i)
        if (programs[i]) times.programs.emplace_back(compiled.round.names()[i], seconds[i]);
    times.peak_s = compiled.round.peak(seconds);
    return times;
}

}  // namespace orrery
