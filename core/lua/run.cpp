// Implements the methods of a run: summary, train, sample.
#include <fmt/format.h>

#include "lua/given.h"
#include "lua/record/data.h"
#include "lua/record/traced.h"
#include "lua/state.h"
#include "run/settings.h"

namespace orrery::lua {

namespace {

/// Throws Error unless the run at index 1 is the newest one of the script, since the host has only that one.
void check_newest(lua_State* L) {
    const Run& run = check<Run>(L, 1);
    if (run.number != state_of(L).runs)
        fail(L,
             fmt::format("the run \"{}\" is not the one that was compiled last: a script trains one program at a time\n"
                         "  call it before the next program:compile()",
                         run.name));
}

int run_summary(lua_State* L) {
    check_newest(L);
    push(L, state_of(L).host().summary());
    return 1;
}

/// run:train(data [, { steps = , ... }]): trains the compiled program.
int run_train(lua_State* L) {
    check_newest(L);
    const Data& data = check<Data>(L, 2);
    Host& host = state_of(L).host();
    Fields fields(L, 3, "run:train");
    OptionOrKey train(L, fields, "train");
    TrainOptions options;
    options.origin = where(L);
    options.steps = train.integer("steps", 1, "steps");
    if (options.steps < 1)
        fail(L, "run:train: steps is missing\n  give it here or as train.steps in the configuration");
    options.evaluate_every = train.integer("evaluate_every", 0, "evaluate_every");
    options.evaluate_batches = train.integer("evaluate_batches", 0, "evaluate_batches");
    const Settings settings = read_settings(host.config());
    options.checkpoint_every = OptionOrKey(L, fields, "checkpoint").integer("checkpoint_every", 0, "every_steps");
    const bool every = fields.has("checkpoint_every");
    if (every && settings.auto_saves) give(L, "checkpoint", "every", std::string("steps"));
    options.checkpoint_final = host.config().table("checkpoint").flag("final", false);
    options.checkpoint_async = settings.async_saves;
    if (settings.auto_saves && !every) options.checkpoint_mtbf_s = settings.node_mtbf_s;
    options.log_every = train.integer("log_every", 1, "log_every");
    options.max_skips = host.config().table("train").integer("max_skips", 0);
    fields.finish();
    give_keys(L, data);
    const auto paused = state_of(L).pause();
    batch_of(data);
    host.train(data.spec, options);
    return 0;
}

/// run:sample { prompt = , tokens = , temperature = , top_k = , seed = } -> text that continues the prompt
int run_sample(lua_State* L) {
    check_newest(L);
    Host& host = state_of(L).host();
    Fields fields(L, 2, "run:sample");
    OptionOrKey sample(L, fields, "sample");
    SampleOptions options = read_sample(host.config());
    options.prompt = sample.text("prompt", "prompt");
    options.tokens = sample.integer("tokens", 1, "tokens");
    options.temperature = sample.number("temperature", "temperature");
    if (!(options.temperature >= 0)) fields.wrong("temperature", "0 or more");
    options.top_k = sample.integer("top_k", 0, "top_k");
    options.seed = static_cast<uint64_t>(fields.integer("seed", 0).value_or(static_cast<int64_t>(options.seed)));
    fields.finish();
    std::string text;
    {
        const auto paused = state_of(L).pause();
        text = host.sample(options);
    }
    push(L, text);
    return 1;
}

}  // namespace

void open_run(lua_State* L) {
    const luaL_Reg run[] = {{"summary", guard<run_summary>},
                            {"train", guard<run_train>},
                            {"sample", guard<run_sample>},
                            {nullptr, nullptr}};
    add_class<Run>(L, run);
}

}  // namespace orrery::lua
