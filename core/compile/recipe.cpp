#include "compile/recipe.h"

#include <fmt/format.h>

#include "compile/pipeline.h"
#include "ir/print.h"
#include "layout/stages.h"

namespace orrery {
namespace {

/// Micro-batches keep their size: a smaller step has fewer of them.
int64_t microbatches_of(const Recipe& recipe, int64_t batch) {
    if (batch == recipe.batch) return recipe.microbatches;
    const int64_t full = recipe.batch, micro = recipe.microbatches == 1 ? full : recipe.microbatches * batch;
    if (micro % full == 0) return micro / full;
    throw Error(
        recipe.train_origin,
        fmt::format("the ramp's batch of {} sequences is not made of whole micro-batches: {} of {} sequences in a full "
                    "step\n  choose train.ramp_start and train.ramp_increment as multiples of {}, or other "
                    "train.microbatches",
                    batch, recipe.microbatches, full / recipe.microbatches, full / recipe.microbatches));
}

/// `train`: annotated. A strategy may name the number of the full step's micro-batches, so the smaller ones come later.
void check_ramp(const Recipe& recipe, const Program& train, const std::vector<int64_t>& smaller, const Mesh& mesh) {
    if (stage_count(train, mesh) == 1) return;
    for (const int64_t batch : smaller) {
        if (microbatches_of(recipe, batch) == recipe.microbatches) continue;
        const Pipeline& pipeline = train.pipeline();
        throw Error(
            pipeline.origin,
            fmt::format("schedule {} is made for the {} micro-batches of a step of {} sequences, but the "
                        "batch grows, and its step of {} sequences has {}\n"
                        "  leave the ramp out (train.ramp_start, train.ramp_increment and "
                        "train.ramp_samples, or ramp of train_with), or take one micro-batch where the "
                        "schedule can (train.microbatches = 1, or microbatches of train_with)",
                        pipeline.schedule, recipe.microbatches, recipe.batch, batch, microbatches_of(recipe, batch)));
    }
}

/// Smaller steps are recorded later than the full one: what changed in between would train something else.
void check_repeats(const Recipe& recipe, const Program& step) {
    if (print(train_step(recipe, recipe.batch)) == print(step)) return;
    throw Error(recipe.train_origin,
                "the optimizer records another step when it is called again, as it is for the ramp's other batches\n"
                "  let it depend on nothing that changes after train_with");
}

PassInput input_of(const Recipe& recipe, ProgramRole role, int64_t batch, const Mesh* mesh = nullptr) {
    const int64_t microbatches = role == ProgramRole::train ? microbatches_of(recipe, batch) : recipe.microbatches;
    return {role, &recipe, batch, microbatches, mesh, nullptr};
}

Program marked(const Recipe& recipe, ProgramRole role, int64_t batch, const Mesh& mesh, Program recorded) {
    const PassInput input = input_of(recipe, role, batch, &mesh);
    return recorded.ops.empty() ? recorded : run_passes(PassPart::mark, std::move(recorded), input);
}

Program made(const Recipe& recipe, ProgramRole role, int64_t batch, const Mesh& mesh) {
    return marked(recipe, role, batch, mesh, run_passes(PassPart::record, {}, input_of(recipe, role, batch)));
}

}  // namespace

Program train_step(const Recipe& recipe, int64_t batch) {
    return run_passes(PassPart::record, {}, input_of(recipe, ProgramRole::train, batch));
}

std::vector<int64_t> smaller_batches(const Recipe& recipe) {
    if (recipe.ramp.start == 0) return {};
    std::vector<int64_t> sizes;
    try {
        sizes = BatchSizes(recipe.batch, recipe.ramp).sizes();
    } catch (const Error& error) {
        throw Error(recipe.train_origin, error.what());
    }
    sizes.pop_back();
    for (const int64_t batch : sizes) microbatches_of(recipe, batch);
    return sizes;
}

Experiment make_experiment(const Recipe& recipe, Program step, const Mesh& mesh) {
    Experiment made_of;
    const std::vector<int64_t> smaller = smaller_batches(recipe);
    if (!smaller.empty()) check_repeats(recipe, step);
    made_of.name = recipe.name;
    made_of.train = marked(recipe, ProgramRole::train, recipe.batch, mesh, std::move(step));
    made_of.ramp = recipe.ramp;
    check_ramp(recipe, made_of.train, smaller, mesh);
    for (const int64_t batch : smaller) made_of.smaller.push_back(made(recipe, ProgramRole::train, batch, mesh));
    made_of.eval = made(recipe, ProgramRole::evaluate, recipe.batch, mesh);
    Program logits = made(recipe, ProgramRole::logits, 1, mesh);
    if (!logits.ops.empty()) made_of.logits = std::move(logits);
    made_of.mesh = mesh.with_microbatches(made_of.train.microbatches());
    made_of.redistribution = recipe.redistribution;
    for (const AskedStrategy& asked : recipe.strategies)
        for (const auto& [key, word] : asked.words)
            if (key == "axis" || mesh.find(word)) made_of.axes.push_back(word);
    if (stage_count(made_of.train, mesh) > 1) {
        Pipeline pipeline = made_of.train.pipeline();
        made_of.schedule = recipe.schedule(pipeline, mesh.size(pipeline.axis), made_of.train.microbatches());
    }
    made_of.weights = recipe.weights;
    return made_of;
}

}  // namespace orrery
