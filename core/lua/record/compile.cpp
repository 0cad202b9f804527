// Implements program:compile(), which makes a recipe (what to compile) from the script's functions for the host.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "lua/given.h"
#include "lua/record/traced.h"
#include "lua/schedules.h"
#include "lua/state.h"

namespace orrery::lua {

Program with_codecs(lua_State* L, Program program) {
    program.codecs = state_of(L).codecs;
    return program;
}

Recipe recipe_of(lua_State* L, const Traced& traced) {
    Recipe recipe = traced.recipe;
    State& state = state_of(L);
    const auto at = std::make_shared<lua_State*>(L);
    recipe.forward = [at, &traced](const ProgramEntry& entry) {
        Declared declared;
        return with_codecs(*at, record_forward(*at, traced, entry, declared));
    };
    for (size_t i = 0; i < recipe.added.size(); ++i)
        recipe.added[i].forward = [at, i, &traced](int64_t batch) {
            Declared declared;
            return with_codecs(*at, record_added(*at, traced, i, batch, declared));
        };
    recipe.update = [at, &traced](Program program) { return record_update(*at, traced, std::move(program)); };
    for (size_t i = 0; i < recipe.also.size(); ++i)
        recipe.also[i].update = [at, i, &traced](Program program) {
            return record_update(*at, traced, std::move(program), static_cast<int>(i));
        };
    recipe.schedule = [at](Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
        return make_schedule(*at, pipeline, ranks, microbatches);
    };
    recipe.later = [at, &state](const std::function<void()>& work) {
        *at = state.lua();  // not the coroutine that compiled, which may no longer exist
        state.call_later(work);
    };
    recipe.look = state.host().look;
    recipe.redistribution.decompositions = state.decompositions;
    for (const auto& own : state.codecs)
        if (!own->text.empty()) recipe.codecs.push_back(own->text);
    return recipe;
}

namespace {

/// Reports to the host, as the value of train.microbatches, a number of micro-batches that a strategy has set.
void give_microbatches(lua_State* L, const Recipe& recipe, const Program& step) {
    if (step.microbatches() == recipe.microbatches) return;
    const Origin& schedule = step.pipeline().origin;
    const Origin line = schedule.line > 0 ? Origin{"", schedule.file, schedule.line} : where(L);
    give(L, {"train", "microbatches", line, ConfigValue{step.microbatches(), line, true}});
}

/// Records the first step of the round, unless it is that of train_with.
void record_first(lua_State* L, Traced& traced) {
    const std::vector<std::string>& names = traced.recipe.round.names();
    const bool steps = std::ranges::find(names, "step") != names.end(), optimizer = traced.optimizer != LUA_NOREF;
    if (steps && !optimizer) fail(L, "compile: the program has no optimizer; call program:train_with first");
    if (optimizer && !steps)
        fail(L, fmt::format("compile: the step of train_with never runs: the round {} has no step\n  add step to "
                            "the round, or remove program:train_with",
                            quote(traced.recipe.round.text())));
    if (!optimizer) {
        Fields none(L, 2, "compile");
        read_step(L, traced.recipe, none);
        smaller_batches(traced.recipe);
    }
    if (names.front() == "step") return;
    Recipe recording = recipe_of(L, traced);
    recording.forward = [L, &traced](const ProgramEntry&) { return with_codecs(L, traced.forward); };
    traced.step = train_step(recording, recording.batch);
}

}  // namespace

int compile_program(lua_State* L) {
    Traced& traced = open_program(L, "compile");
    record_first(L, traced);
    State& state = state_of(L);
    check_script_table(state);
    Experiment experiment =
        make_experiment(recipe_of(L, traced), traced.step, state.host().mesh(), state.host().train_step_alone);
    give_microbatches(L, traced.recipe, experiment.train());
    traced.compiled = true;
    lua_pushvalue(L, 1);
    // keeps the traced program alive as long as this Lua state, since the recipe calls its functions
    luaL_ref(L, LUA_REGISTRYINDEX);
    {
        const auto paused = state.pause();
        state.host().compile(std::move(experiment));
    }
    push_object(L, Run{traced.recipe.name, ++state.runs});
    return 1;
}

}  // namespace orrery::lua
