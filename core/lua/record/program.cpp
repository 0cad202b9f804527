// Implements o.trace and the methods of a program: train_with, parallel, metric, weights.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/print.h"
#include "lua/given.h"
#include "lua/record/capacity.h"
#include "lua/record/loss_scale.h"
#include "lua/record/traced.h"
#include "lua/state.h"

namespace orrery::lua {

void check_name(lua_State* L, int index, const std::string& name, const char* what) {
    const auto plain = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    };
    if (name.empty() || !std::all_of(name.begin(), name.end(), plain))
        bad_argument(L, index,
                     fmt::format("invalid name {} of {}: only letters, digits, _ . - are allowed", quote(name), what));
}

Traced& open_program(lua_State* L, std::string_view function) {
    Traced& traced = check<Traced>(L, 1);
    if (traced.compiled)
        fail(L, fmt::format("{}: the program \"{}\" is compiled already", function, traced.recipe.name));
    return traced;
}

namespace {

/// Returns the number of sequences in one step: the size of the inputs' dim "batch".
int64_t full_batch(lua_State* L, const Traced& traced) {
    int64_t batch = 0;
    const std::string* first = nullptr;
    for (const InputSpec& spec : traced.signature)
        for (size_t d = 0; d < spec.dims.size(); ++d) {
            if (spec.dims[d] != "batch") continue;
            if (first && spec.type.shape[d] != batch)
                fail(L, fmt::format("o.trace: the size of dim batch differs: {} in input {} and {} in input {}\n"
                                    "  rename the dim of one input",
                                    batch, quote(*first), spec.type.shape[d], quote(spec.name)));
            batch = spec.type.shape[d];
            first = &spec.name;
        }
    return batch;
}

/// o.trace(name, signature, function) -> program, recorded by calling the model's function
int trace(lua_State* L) {
    Traced traced;
    traced.recipe.name = check_text(L, 1);
    traced.signature = check_signature(L, 2);
    check_function(L, 3);
    lua_settop(L, 3);
    traced.recipe.trace_origin = where(L);
    traced.recipe.batch = full_batch(L, traced);
    lua_pushvalue(L, 3);
    traced.function = luaL_ref(L, LUA_REGISTRYINDEX);
    Declared declared;
    traced.forward = record_forward(L, traced, {.batch = traced.recipe.batch}, declared);
    traced.recipe.mean = declared.mean;
    traced.capacities = declared.capacities;
    traced.recipe.capacities = union_of(traced.capacities);
    if (traced.capacities.size() > 1)  // again, now that all capacities are known
        traced.forward = record_forward(L, traced, {.batch = traced.recipe.batch}, declared);
    push_object(L, std::move(traced));
    return 1;
}

DType read_precision(lua_State* L, Fields& fields) {
    const std::string given = OptionOrKey(L, fields, "train").text("precision", "precision");
    if (given == "f32") return DType::f32;
    if (given == "bf16") return DType::bf16;
    if (given == "f16") return DType::f16;
    if (given == "fp8") return DType::f8e4m3;
    const std::string why =
        fmt::format("no precision {}{}", quote(given), choices("known", given, {"f32", "bf16", "f16", "fp8"}));
    if (fields.has("precision")) fail(L, why);
    throw Error(state_of(L).host().config().table("train").where("precision"), why);
}

/// Reads the batch ramp from { ramp = { start = , increment = , samples = } }, else from train.ramp_*. If both are
/// absent, there is no ramp.
BatchRamp read_ramp(lua_State* L, Fields& fields) {
    Config& config = state_of(L).host().config().table("train");
    BatchRamp ramp;
    fields.push_field("ramp");
    if (!lua_isnil(L, -1)) {
        Fields given(L, -1, "ramp");
        struct Part {
            const char *name, *key;
            int64_t* to;
        };
        for (const auto& [name, key, to] :
             {Part{"start", "ramp_start", &ramp.start}, Part{"increment", "ramp_increment", &ramp.increment},
              Part{"samples", "ramp_samples", &ramp.samples}}) {
            const auto value = given.integer(name, 1);
            if (!value) given.wrong(name, "a number of sequences");
            *to = *value;
            give(L, "train", key, *value);
        }
        given.finish();
        lua_pop(L, 1);
        return ramp;
    }
    lua_pop(L, 1);
    ramp.start = config.integer("ramp_start", 0);
    ramp.increment = config.integer("ramp_increment", 0);
    ramp.samples = config.integer("ramp_samples", 0);
    for (const char* key : {"ramp_start", "ramp_increment", "ramp_samples"}) {
        if (ramp == BatchRamp{} || config.integer(key, 0) > 0) continue;
        throw Error(config.origin(), fmt::format("train.{} is missing: a ramp of the batch needs train.ramp_start, "
                                                 "train.ramp_increment and train.ramp_samples",
                                                 key));
    }
    return ramp;
}

}  // namespace

void read_step(lua_State* L, Recipe& recipe, Fields& fields) {
    recipe.train_origin = where(L);
    recipe.precision = read_precision(L, fields);
    recipe.microbatches =
        std::max<int64_t>(1, OptionOrKey(L, fields, "train").integer("microbatches", 1, "microbatches"));
    recipe.loss_scale = read_loss_scale(L, fields, recipe.precision);
    recipe.ramp = read_ramp(L, fields);
    fields.finish();
}

namespace {

/// program:train_with(optimizer [, { precision = , microbatches = , loss_scale = , ramp = }]): adds the optimizer.
int train_with(lua_State* L) {
    Traced& traced = open_program(L, "train_with");
    if (traced.optimizer != LUA_NOREF) fail(L, "train_with is called twice; a program has one optimizer");
    check_function(L, 2);
    Fields fields(L, 3, "train_with");
    struct Attempt {  // restores the program if an error is thrown
        lua_State* L;
        Traced& traced;
        Recipe before = traced.recipe;
        bool done = false;
        ~Attempt() {
            if (done) return;
            luaL_unref(L, LUA_REGISTRYINDEX, std::exchange(traced.optimizer, LUA_NOREF));
            traced.recipe = before;
            traced.step = {};
        }
    } attempt{L, traced};
    Recipe& recipe = traced.recipe;
    read_step(L, recipe, fields);
    lua_pushvalue(L, 2);
    traced.optimizer = luaL_ref(L, LUA_REGISTRYINDEX);
    Recipe recording = recipe_of(L, traced);
    recording.round = Round();
    recording.forward = [L, &traced](const ProgramEntry&) { return with_codecs(L, traced.forward); };
    traced.step = train_step(recording, recipe.batch);
    const auto of_param = [&](const Update& u) { return traced.step.value(u.target).role == Role::param; };
    if (std::ranges::none_of(traced.step.updates, of_param))
        fail(L, "train_with: the optimizer updates no param; it calls update:set(p, value)");
    smaller_batches(recipe);  // throws errors of smaller batches here, not at compile()
    attempt.done = true;
    lua_settop(L, 1);
    return 1;
}

/// Reads the named entries of program:parallel's list: options that limit implicit redistribution.
void read_redistribution(lua_State* L, PropagateOptions& options) {
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, 2) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, -4);
        } else {
            lua_pop(L, 1);
        }
    }
    Fields fields(L, -1, "parallel");
    options.forbid_implicit = fields.flag("forbid_implicit").value_or(options.forbid_implicit);
    if (const auto mib = fields.number("implicit_budget_mib")) {
        if (!(*mib >= 0)) fields.wrong("implicit_budget_mib", "0 or more");
        options.budget_bytes = static_cast<int64_t>(*mib * 1048576.0);
    }
    fields.finish();
    lua_pop(L, 1);
}

/// program:parallel { strategy, ... [, forbid_implicit = , implicit_budget_mib = ] }: adds the strategies.
int parallel(lua_State* L) {
    Traced& traced = open_program(L, "parallel");
    check_table(L, 2, "a list of strategies");
    read_redistribution(L, traced.recipe.redistribution);
    for (lua_Integer i = 1; lua_rawgeti(L, 2, i) != LUA_TNIL; ++i) {
        const AskedStrategy* asked = test<AskedStrategy>(L, -1);
        if (!asked) bad_argument(L, 2, fmt::format("entry {} is {}, expected a strategy", i, type_text(L, -1)));
        traced.recipe.strategies.push_back(*asked);
        lua_pop(L, 1);
    }
    lua_settop(L, 1);
    return 1;
}

/// Throws Error unless a program of this name can be added: `taken` names and those of other programs cannot.
void check_new_name(lua_State* L, const Traced& traced, const std::string& name, const std::set<std::string>& taken,
                    const char* what) {
    const bool duplicate = std::ranges::count(traced.recipe.added, name, &AddedProgram::name) > 0 ||
                           std::ranges::count(traced.recipe.also, name, &AlsoProgram::name) > 0;
    if (name.empty() || taken.contains(name) || duplicate)
        bad_argument(L, 2, fmt::format("duplicate {} {}; give it another name", what, quote(name)));
}

/// program:also(name, function): adds a program with another update over the same arrays, for program:round.
int also(lua_State* L) {
    Traced& traced = open_program(L, "also");
    const std::string name = check_text(L, 2);
    check_function(L, 3);
    lua_settop(L, 3);
    std::set<std::string> taken = {"then", "train", "eval", "logits"};
    taken.insert(round_words.begin(), round_words.end());
    check_new_name(L, traced, name, taken, "program");
    check_name(L, 2, name, "a program");
    traced.recipe.also.push_back({name, where(L), {}});
    traced.also.push_back(luaL_ref(L, LUA_REGISTRYINDEX));
    lua_settop(L, 1);
    return 1;
}

/// program:round(text): the order in which the step and the programs of program:also run.
int round(lua_State* L) {
    Traced& traced = open_program(L, "round");
    if (traced.recipe.round.origin() != Origin{}) fail(L, "round is called twice; a training has one round");
    traced.recipe.round = Round(check_text(L, 2), where(L));
    lua_settop(L, 1);
    return 1;
}

/// program:metric(name, function): a sum and its count over held-out data; evaluations report the quotient.
int metric(lua_State* L) {
    Traced& traced = open_program(L, "metric");
    const std::string name = check_text(L, 2);
    check_function(L, 3);
    lua_settop(L, 3);
    static const std::set<std::string> taken = {"train",     "eval",        "logits",     "step",
                                                "eval_loss", "eval_tokens", "eval_count", "loss"};
    check_new_name(L, traced, name, taken, "metric");
    const bool told = name.starts_with("eval_") && traced.forward.result(quotient_of(name.substr(5)).sum);
    if (told)
        bad_argument(L, 2,
                     fmt::format("evaluations report the result {} under the name {}; give the metric another name",
                                 quote(name.substr(5)), quote(name)));
    check_name(L, 2, name, "a metric");
    traced.recipe.added.push_back({name, where(L), {}});
    lua_pushvalue(L, 3);
    traced.added.push_back(luaL_ref(L, LUA_REGISTRYINDEX));
    try {
        Declared declared;
        record_added(L, traced, traced.added.size() - 1, traced.recipe.batch, declared);  // throws its errors here
        traced.recipe.added.back().mean = declared.mean;
    } catch (...) {
        luaL_unref(L, LUA_REGISTRYINDEX, traced.added.back());
        traced.added.pop_back();
        traced.recipe.added.pop_back();
        throw;
    }
    lua_settop(L, 1);
    return 1;
}

const Program& recorded(const Traced& traced) { return traced.optimizer == LUA_NOREF ? traced.forward : traced.step; }

/// program:weights(model:tensors()): maps params to tensors of published files, for checkpoint.load.
int weights(lua_State* L) {
    Traced& traced = open_program(L, "weights");
    traced.recipe.weights = check_weights(L, 2, recorded(traced));
    lua_settop(L, 1);
    return 1;
}

/// program:text() -> the train program as recorded so far, without layouts.
int program_text(lua_State* L) {
    push(L, print(recorded(check<Traced>(L, 1))));
    return 1;
}

}  // namespace

void open_program(lua_State* L) {
    const luaL_Reg program[] = {{"train_with", guard<train_with>},
                                {"parallel", guard<parallel>},
                                {"weights", guard<weights>},
                                {"compile", guard<compile_program>},
                                {"metric", guard<metric>},
                                {"also", guard<also>},
                                {"round", guard<round>},
                                {"text", guard<program_text>},
                                {nullptr, nullptr}};
    add_class<Traced>(L, program);
    lua_pushcfunction(L, guard<trace>);
    lua_setfield(L, -2, "trace");
}

}  // namespace orrery::lua
