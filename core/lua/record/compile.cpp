// program:compile: the script's functions as a recipe, and what the host makes of it.
#include "lua/record/traced.h"
#include "lua/schedules.h"
#include "lua/state.h"

namespace orrery::lua {

Recipe recipe_of(lua_State* L, const Traced& traced) {
    Recipe recipe = traced.recipe;
    recipe.forward = [L, &traced](bool training, int64_t batch) {
        const bool recorded = training && batch == traced.recipe.batch && !traced.forward.ops.empty();
        return recorded ? traced.forward : record_forward(L, traced, training, batch);
    };
    recipe.update = [L, &traced](Program program) { return record_update(L, traced, std::move(program)); };
    recipe.schedule = [L](Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
        return make_schedule(L, pipeline, ranks, microbatches);
    };
    recipe.look = state_of(L).host().look();
    return recipe;
}

int compile_program(lua_State* L) {
    Traced& traced = open_program(L, "compile");
    if (traced.step.ops.empty()) fail(L, "compile: the program has no optimizer; call program:train_with first");
    State& state = state_of(L);
    check_script_table(state);
    Experiment experiment = make_experiment(recipe_of(L, traced), traced.step, state.host().mesh());
    traced.compiled = true;
    {
        const auto paused = state.pause();
        state.host().compile(std::move(experiment));
    }
    push_object(L, Run{traced.recipe.name});
    return 1;
}

}  // namespace orrery::lua
