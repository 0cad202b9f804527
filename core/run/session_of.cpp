#include "run/session_of.h"

#include <utility>

namespace orrery {

CompileOptions compile_options(const Settings& settings, const Job& job, Device* device, const Network& contracts,
                               const std::map<std::string, std::vector<ChunkTable>>& collectives) {
    CompileOptions options;
    options.contracts = contracts;
    options.collectives = collectives;
    options.threads_per_rank = threads_of(settings, job);
    options.memory_bytes = settings.memory_bytes;
    if (!device) return options;
    options.workspace = [device](const KernelSpec& spec) { return device->prepare(spec)->scratch_bytes(); };
    options.runs = [device](const KernelSpec& spec) { return device->why_not(spec).empty(); };
    return options;
}

std::unique_ptr<Session> session_of(const SessionParts& parts, const Job& job, const Mesh& mesh) {
    Settings settings = parts.settings;
    settings.mesh = mesh;
    std::unique_ptr<Device> device = make_device(settings, parts.config, parts.registry, job);
    const Network contracts = contracts_of(settings, parts.config, parts.registry);
    CompileOptions options = compile_options(settings, job, device.get(), contracts, parts.collectives);
    options.look = parts.recipe.look;
    Compiled compiled;
    parts.recipe.later([&] {
        const Experiment experiment = make_experiment(parts.recipe, train_step(parts.recipe, parts.recipe.batch), mesh);
        compiled = compile_training(experiment, options);
        for (const Calls& calls : evaluation_calls(compiled, parts.evaluated_samples))
            add_program(compiled, experiment, calls.entry, options);
    });
    return std::make_unique<Session>(settings, parts.config, parts.registry, job, std::move(compiled),
                                     std::move(device));
}

}  // namespace orrery
