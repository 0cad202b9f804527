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

ScaledRun on_cluster(const ScriptCommand& script, const SimulateCommand& how) {
    const Cluster cluster = read_cluster(how.cluster, how.cluster_nodes);
    const Forecast made = forecast(script, cluster, how);
    require_memory(made.prediction);
    ScaledRun run;
    run.ranks = made.prediction.ranks;
    run.tokens_per_s = made.prediction.tokens_per_s_rank * static_cast<double>(run.ranks);
    run.mfu = made.prediction.mfu;
    add_parts(run, made.prediction);
    return run;
}

ScaledRun on_this_machine(const ScriptCommand& given, const SimulateCommand& how) {
    const LocalScript script = local_script(given, how);
    const LocalForecast made = local_forecast(script.compiled, script.settings, script.plain, how);
    const double step = made.step_s();
    ScaledRun run;
    run.notes = script.notes;
    run.ranks = script.compiled.mesh.ranks();
    run.tokens_per_s = static_cast<double>(script.compiled.tokens_per_step) / step;
    add_parts(run, shares_of(made.run, script.compiled.mesh, step));
    run.parts["the rest"] = made.rest_s / step;
    return run;
}

}  // namespace

ScaledRun simulated_run(const ScriptCommand& script, const ScaleCommand& command) {
    ScaledRun run =
        command.how.cluster.empty() ? on_this_machine(script, command.how) : on_cluster(script, command.how);
    if (!(run.tokens_per_s > 0))
        throw Error("scale: the script's inputs are not tokens, so that there is no throughput in tokens/s to compare",
                    Fault::failed);
    std::erase_if(run.parts, [](const auto& part) { return part.second <= 0; });
    return run;
}

}  // namespace orrery
