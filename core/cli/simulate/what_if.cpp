#include "cli/simulate/what_if.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/local_forecast.h"
#include "sim/local/local_costs.h"
#include "sim/predict.h"

namespace orrery {
namespace {

std::string of_transports(const LocalForecast& made) {
    std::string text;
    for (const auto& [axis, name] : made.transports) text += fmt::format(", {} by {}", axis, name);
    return text;
}

std::string transports_fact(const LocalForecast& made) {
    std::string text;
    for (const auto& [axis, name] : made.transports)
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis, name);
    return text;
}

std::string text_fact(const CostTable& table, const std::string& name) {
    for (const auto& [fact, value] : table.facts)
        if (fact == name) return value;
    return "";
}

/// Whether a prediction is of the measured run itself: with the same plan and transports, and without what-if flags.
bool as_it_was(const LocalScript& script, const LocalForecast& made, const SimulateCommand& command) {
    const double had = fact_of(plain_costs(*script.measured), "processors", made.processors);
    return command.slow.empty() && command.jitter == 0 && command.imbalance == 0 && command.link_gbit == 0 &&
           command.link_us == 0 && made.processors == had &&
           text_fact(*script.measured, "fingerprint") == priced_step(script.compiled).fingerprint &&
           text_fact(*script.measured, "transports") == transports_fact(made);
}

std::string ms(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }

std::string told_step(const LocalScript& script, const LocalForecast& made, bool unchanged) {
    std::string text = fmt::format("step        {} predicted", ms(made.step_s()));
    const double measured = script.measured ? total_of(*script.measured, "step") : 0;
    if (measured > 0 && unchanged)
        text += fmt::format(", {} measured ({:+.1f} %)", ms(measured), 100 * (made.step_s() / measured - 1));
    if (measured > 0 && !unchanged)
        text += fmt::format(", {:.2f} times the {} that the run measured", made.step_s() / measured, ms(measured));
    if (script.compiled.tokens_per_step > 0)
        text += fmt::format("   {} tokens/s",
                            short_text(static_cast<double>(script.compiled.tokens_per_step) / made.step_s()));
    return text + "\n";
}

TrainingTerms terms_of(const LocalScript& script, const SimulateCommand& command) {
    return {.tokens = command.tokens, .tokens_per_step = static_cast<double>(script.compiled.tokens_per_step)};
}

std::string told(const std::string& name, const LocalScript& script, const LocalForecast& made,
                 const TrainingTerms& terms, bool unchanged) {
    const Plan& plan = script.compiled.train();
    const Mesh mesh = plan.mesh.with_microbatches(1);
    std::string text =
        fmt::format("{} on this machine: {}{} of {} on {}{}\n", name, mesh.axes().empty() ? "" : mesh.text() + ", ",
                    plural(plan.mesh.ranks(), "rank"), plural(plan.threads_per_rank, "thread"),
                    plural(static_cast<int64_t>(made.processors), "processor"), of_transports(made));
    text += told_step(script, made, unchanged);
    if (terms.tokens > 0) text += fmt::format("training    {}\n", orrery::text(terms, made.step_s()));
    text += made.round.text(script.compiled, made.run.step_s);
    text += capacity_line(script.compiled);
    const StepShares shares = shares_of(made.run, plan.mesh, made.step_s());
    text += fmt::format("time        computing {:.1f} %", 100 * shares.computing);
    for (const auto& [axis, share] : shares.exposed) text += fmt::format(", {} exposed {:.1f} %", axis, 100 * share);
    text += fmt::format(", waiting for other ranks {:.1f} %, between two steps {:.1f} %\n", 100 * shares.waiting,
                        100 * made.rest_s / made.step_s());
    text += made.loads;
    text += fmt::format("memory      {} on a rank at most\n", bytes_text(script.compiled.largest_arenas().both()));
    text += fmt::format("costs       {}\n", join(script.tables, ", "));
    for (const std::string& source : made.sources) text += fmt::format("            {}\n", source);
    for (const std::string& note : script.notes) text += fmt::format("            {}\n", note);
    return text;
}

Json as_json(const LocalScript& script, const LocalForecast& made, const SimulateCommand& command, bool unchanged) {
    const StepShares shares = shares_of(made.run, script.compiled.mesh, made.step_s());
    Json json = {{"ranks", script.compiled.mesh.ranks()},
                 {"threads", script.compiled.train().threads_per_rank},
                 {"processors", made.processors},
                 {"step_s", made.step_s()},
                 {"computing", shares.computing},
                 {"exposed", shares.exposed},
                 {"waiting", shares.waiting},
                 {"rest", made.rest_s / made.step_s()},
                 {"memory_bytes", script.compiled.largest_arenas().both()},
                 {"tables", script.tables},
                 {"sources", made.sources},
                 {"notes", script.notes}};
    if (command.tokens > 0) json["training"] = training_json(terms_of(script, command), made.step_s());
    if (command.imbalance > 0) json["imbalance"] = command.imbalance;
    if (!script.compiled.capacities.empty()) json["capacity"] = script.compiled.capacities.front();
    if (script.compiled.tokens_per_step > 0)
        json["tokens_per_s"] = static_cast<double>(script.compiled.tokens_per_step) / made.step_s();
    if (!script.measured) return json;
    json["measured_step_s"] = total_of(*script.measured, "step");
    json["as_measured"] = unchanged;
    return json;
}

}  // namespace

int what_if_command(const ScriptCommand& given, const SimulateCommand& command) {
    if (!command.out.empty())
        throw Error(
            "-o: drawing is not supported for a forecast of this machine\n  leave -o out; `orrery run --trace FILE` "
            "records a real step",
            Fault::usage);
    const LocalScript script = local_script(given, command);
    const LocalForecast made = local_forecast(script.compiled, script.settings, script.plain, command);
    const bool unchanged = script.measured && as_it_was(script, made, command);
    if (command.json) {
        std::printf("%s\n", as_json(script, made, command, unchanged).dump(2).c_str());
        return 0;
    }
    std::fputs(told(given.script, script, made, terms_of(script, command), unchanged).c_str(), stdout);
    if (unchanged)
        std::fputs(text_of(compare(priced_step(script.compiled), made.run, made.rest_s, *script.measured)).c_str(),
                   stdout);
    return 0;
}

}  // namespace orrery
