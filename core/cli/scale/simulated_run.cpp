#include <fmt/format.h>

#include "cli/scale/scale.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/local_forecast.h"

namespace orrery {
namespace {

void add_parts(ScaledRun& run, const StepShares& shares) {
    run.parts["compute"] = shares.computing;
    run.parts["waiting"] = shares.waiting;
    for (const auto& [axis, share] : shares.exposed) run.parts["communication " + axis] = share;
}

/// Sets the throughput of a step of `step_s` seconds that reads `tokens` (0: none) and `run.sequences` samples.
void add_throughput(ScaledRun& run, int64_t tokens, double step_s) {
    run.throughput = static_cast<double>(tokens > 0 ? tokens : run.sequences) / step_s;
    run.tokens = tokens > 0;
}

ScaledRun on_cluster(const ScriptCommand& script, const SimulateCommand& how, ScaledRun run) {
    const Cluster cluster = read_cluster(how.cluster, how.cluster_nodes);
    const Forecast made = forecast(script, cluster, how);
    require_memory(made.prediction);
    run.ranks = made.prediction.ranks;
    add_throughput(run, made.compiled.tokens_per_step, made.prediction.step_s);
    run.mfu = made.prediction.mfu;
    add_parts(run, made.prediction);
    return run;
}

LocalForecast priced(const LocalScript& script, const SimulateCommand& how) {
    try {
        return local_forecast(script.compiled, script.settings, script.plain, how);
    } catch (const Error& error) {
        throw NotPriced(error.what(), error.fault());
    }
}

ScaledRun on_this_machine(const ScriptCommand& given, const SimulateCommand& how, ScaledRun run) {
    const LocalScript script = local_script(given, how);
    const LocalForecast made = priced(script, how);
    const double step = made.step_s();
    run.notes = script.notes;
    run.ranks = script.compiled.mesh.ranks();
    add_throughput(run, script.compiled.tokens_per_step, step);
    add_parts(run, shares_of(made.run, script.compiled.mesh, step));
    run.parts["the rest"] = made.rest_s / step;
    return run;
}

}  // namespace

ScaledRun simulated_run(const ScriptCommand& script, const ScaleCommand& command, int64_t sequences) {
    ScaledRun run;
    run.sequences = sequences;
    run = command.how.cluster.empty() ? on_this_machine(script, command.how, std::move(run))
                                      : on_cluster(script, command.how, std::move(run));
    std::erase_if(run.parts, [](const auto& part) { return part.second <= 0; });
    return run;
}

}  // namespace orrery
