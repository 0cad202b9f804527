// o.trace, program:train_with, parallel, weights.
#include <fmt/format.h>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/print.h"
#include "lua/experiment.h"
#include "lua/fields.h"
#include "lua/loss_scale.h"
#include "lua/state.h"

namespace orrery::lua {

std::shared_ptr<Tape> named_tape(const std::string& name, bool training) {
    Program start;
    start.name = name;
    auto tape = std::make_shared<Tape>(std::move(start));
    tape->training = training;
    return tape;
}

Traced& open_program(lua_State* L, std::string_view function) {
    Traced& traced = check<Traced>(L, 1);
    if (traced.compiled) fail(L, fmt::format("{}: the program \"{}\" is compiled already", function, traced.name));
    return traced;
}

namespace {

/// o.trace(name, signature, function) -> program
int trace(lua_State* L) {
    Traced traced;
    traced.name = check_text(L, 1);
    traced.signature = check_signature(L, 2);
    check_function(L, 3);
    lua_settop(L, 3);
    traced.origin = where(L);
    lua_pushvalue(L, 3);
    traced.function = luaL_ref(L, LUA_REGISTRYINDEX);
    traced.train = named_tape(traced.name, true);
    record_forward(L, traced, traced.train, 0, traced.loss_sum, traced.count);
    push_object(L, std::move(traced));
    return 1;
}

DType read_precision(lua_State* L, Fields& fields) {
    Config& config = state_of(L).host().config().table("train");
    const std::string given = fields.text("precision").value_or(config.text("precision", "f32"));
    if (given == "f32") return DType::f32;
    if (given == "bf16") return DType::bf16;
    if (given == "f16") return DType::f16;
    const std::string why =
        fmt::format("no precision {}{}", quote(given), choices("known", given, {"f32", "bf16", "f16"}));
    if (fields.has("precision")) fail(L, why);
    throw Error(config.where("precision"), why);
}

/// program:train_with(optimizer [, { precision = , microbatches = , loss_scale = , ramp = }])
int train_with(lua_State* L) {
    Traced& traced = open_program(L, "train_with");
    if (traced.has_optimizer) fail(L, "train_with is called twice; a program has one optimizer");
    check_function(L, 2);
    Fields fields(L, 3, "train_with");
    traced.precision = read_precision(L, fields);
    Config& config = state_of(L).host().config().table("train");
    traced.microbatches = fields.integer("microbatches", 1).value_or(config.integer("microbatches", 1));
    traced.loss_scale = read_loss_scale(L, fields, traced.precision);
    traced.ramp = read_ramp(L, fields);
    fields.finish();
    const auto tape = record_step(L, traced, *traced.train->program, traced.microbatches);
    if (tape->program->updates.empty())
        fail(L, "train_with: the optimizer updates no param; it calls update:set(p, value)");
    record_ramp(L, traced);
    traced.train = tape;
    traced.has_optimizer = true;
    lua_settop(L, 1);
    return 1;
}

/// The named entries of a list of strategies: what redistributions the script forbids.
void read_redistribution(lua_State* L, PropagateOptions& options) {
    lua_newtable(L);  // without the list
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

/// program:parallel { strategy, ... [, forbid_implicit = , implicit_budget_mib = ] }
int parallel(lua_State* L) {
    Traced& traced = open_program(L, "parallel");
    check_table(L, 2, "a list of strategies");
    read_redistribution(L, traced.redistribution);
    for (lua_Integer i = 1; lua_rawgeti(L, 2, i) != LUA_TNIL; ++i) {
        const Asked* asked = test<Asked>(L, -1);
        if (!asked) bad_argument(L, 2, fmt::format("entry {} is {}, expected a strategy", i, type_text(L, -1)));
        traced.strategies.push_back(*asked);
        lua_pop(L, 1);
    }
    lua_settop(L, 1);
    return 1;
}

/// program:weights(model:tensors()): where published files hold the params, for checkpoint.load.
int weights(lua_State* L) {
    Traced& traced = open_program(L, "weights");
    traced.weights = check_weights(L, 2, *traced.train->program);
    lua_settop(L, 1);
    return 1;
}

/// program:text() -> the train program as recorded so far, without layouts.
int program_text(lua_State* L) {
    push(L, print(*check<Traced>(L, 1).train->program));
    return 1;
}

}  // namespace

void open_program(lua_State* L) {
    const luaL_Reg program[] = {{"train_with", guard<train_with>}, {"parallel", guard<parallel>},
                                {"weights", guard<weights>},       {"compile", guard<compile_program>},
                                {"text", guard<program_text>},     {nullptr, nullptr}};
    add_class<Traced>(L, program);
    lua_pushcfunction(L, guard<trace>);
    lua_setfield(L, -2, "trace");
}

}  // namespace orrery::lua
