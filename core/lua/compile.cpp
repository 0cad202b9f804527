// program:compile: the train step and its smaller batches, the evaluation, the sampling program.
#include <fmt/format.h>

#include "ir/precision.h"
#include "layout/stages.h"
#include "lua/experiment.h"
#include "lua/schedules.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

void annotate(const Traced& traced, Program& program, const Mesh& mesh) {
    for (const Asked& asked : traced.strategies) asked.strategy->annotate(program, mesh);
}

/// The forward program without dropout, annotated like the train program.
Program eval_program(lua_State* L, const Traced& traced, const Program& train, const Mesh& mesh) {
    const auto tape = named_tape(traced.name + ".eval", false);
    ValueId loss_sum = none, count = none;
    record_forward(L, traced, tape, 0, loss_sum, count);
    Program program = std::move(*tape->program);
    if (traced.precision != DType::f32) set_precision(program, traced.precision);
    if (train.microbatches() > 1) program.microbatches(train.microbatches(), traced.origin);
    annotate(traced, program, mesh);
    return program;
}

/// The program from one sequence to its logits. Inputs take no marks: a batch of one is not split.
std::optional<Program> sample_program(lua_State* L, const Traced& traced, const Mesh& mesh) {
    const auto tape = named_tape(traced.name + ".logits", false);
    ValueId loss_sum = none, count = none;
    record_forward(L, traced, tape, 1, loss_sum, count);
    std::optional<Program> program = logits_of(*tape->program);
    if (!program) return std::nullopt;
    if (traced.precision != DType::f32) set_precision(*program, traced.precision);
    Program marked = *program;
    annotate(traced, marked, mesh);
    for (const Mark& mark : marked.marks()) {
        if (marked.value(mark.value).role == Role::input) continue;
        if (mark.what == Mark::What::store)
            program->store(mark.value, mark.axis, mark.placement, mark.origin, mark.optional);
        else
            program->use(mark.value, mark.axis, mark.placement, mark.origin, mark.keep, mark.optional);
    }
    return program;
}

}  // namespace

int compile_program(lua_State* L) {
    Traced& traced = open_program(L, "compile");
    if (!traced.has_optimizer) fail(L, "compile: the program has no optimizer; call program:train_with first");
    State& state = state_of(L);
    check_script_table(state);
    const Mesh& mesh = state.host().mesh();
    Experiment experiment;
    experiment.name = traced.name;
    experiment.train = *traced.train->program;
    annotate(traced, experiment.train, mesh);
    check_ramp(traced, experiment.train, mesh);
    experiment.ramp = traced.ramp;
    experiment.smaller = traced.smaller;
    for (Program& smaller : experiment.smaller) annotate(traced, smaller, mesh);
    experiment.eval = eval_program(L, traced, experiment.train, mesh);
    experiment.logits = sample_program(L, traced, mesh);
    experiment.mesh = mesh.with_microbatches(experiment.train.microbatches());
    experiment.redistribution = traced.redistribution;
    for (const Asked& asked : traced.strategies)
        for (const auto& [key, word] : asked.words)
            if (key == "axis" || mesh.find(word)) experiment.axes.push_back(word);
    if (stage_count(experiment.train, mesh) > 1) {
        Pipeline pipeline = experiment.train.pipeline();
        experiment.schedule = make_schedule(L, pipeline, mesh.size(pipeline.axis), experiment.train.microbatches());
    }
    experiment.weights = traced.weights;
    traced.compiled = true;
    {
        const auto paused = state.pause();
        state.host().compile(std::move(experiment));
    }
    push_object(L, Run{traced.name});
    return 1;
}

}  // namespace orrery::lua
