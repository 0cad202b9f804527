// Implements strategies: Lua functions, and C++ plugins by name.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "lua/fields.h"
#include "lua/record/marks.h"
#include "lua/record/options.h"
#include "lua/record/traced.h"
#include "lua/schedules.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// A strategy that calls a Lua function (program, mesh, options). The Lua state must outlive the strategy.
class LuaStrategy : public Strategy {
public:
    LuaStrategy(lua_State* L, int function, int options, std::string name, Origin asked)
        : L_(L), function_(function), options_(options), name_(std::move(name)), asked_(std::move(asked)) {}

    /// Calls the Lua function while a script runs. Lua errors therefore pass through to the script.
    void annotate(Program& program, const Mesh& mesh) override {
        const auto tape = std::make_shared<Tape>(program, mesh, name_, asked_);
        const CloseView close{*tape};
        luaL_checkstack(L_, 8, "strategy");
        lua_rawgeti(L_, LUA_REGISTRYINDEX, function_);
        push_annotated(L_, tape);
        push_mesh(L_, mesh);
        lua_rawgeti(L_, LUA_REGISTRYINDEX, options_);
        lua_call(L_, 3, 0);
    }

private:
    lua_State* L_;
    int function_, options_;
    std::string name_;
    Origin asked_;
};

/// Pushes a strategy's defaults, overridden by the call's options. With defaults, throws Error for any other option.
void merge_options(lua_State* L, const std::string& name, int given, int defaults) {
    lua_newtable(L);
    const int merged = lua_gettop(L);
    if (lua_istable(L, defaults)) {
        Fields fields(L, given, name);
        for (lua_pushnil(L); lua_next(L, defaults); lua_pop(L, 1)) {
            fields.has(check_text(L, -2));
            lua_pushvalue(L, -2);
            lua_pushvalue(L, -2);
            lua_rawset(L, merged);
        }
        fields.finish();
    }
    if (!lua_istable(L, given)) return;
    for (lua_pushnil(L); lua_next(L, given); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, merged);
    }
}

/// The texts among a strategy's options, in alphabetical order of the options; a list gives each of its texts.
std::vector<std::pair<std::string, std::string>> words_of(lua_State* L, int options) {
    std::vector<std::pair<std::string, std::string>> words;
    if (!lua_istable(L, options)) return words;
    push_sorted_keys(L, options);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) != LUA_TSTRING) {
            lua_pop(L, 1);
            continue;
        }
        const std::string key = check_text(L, -1);
        lua_rawget(L, options);
        if (lua_type(L, -1) == LUA_TSTRING) words.emplace_back(key, check_text(L, -1));
        for (lua_Integer k = 1; lua_istable(L, -1) && lua_rawgeti(L, -1, k) != LUA_TNIL; ++k, lua_pop(L, 1))
            if (lua_type(L, -1) == LUA_TSTRING) words.emplace_back(key, check_text(L, -1));
        lua_settop(L, keys);
    }
    lua_settop(L, keys - 1);
    return words;
}

/// The Lua function that strategy.define returns. Upvalues: the strategy's name, defaults or nil, function.
int make_defined(lua_State* L) {
    const std::string name = check_text(L, lua_upvalueindex(1));
    if (!lua_isnoneornil(L, 1)) check_table(L, 1, "a table of options");
    lua_settop(L, 1);
    const Origin origin = where(L);
    lua_pushvalue(L, lua_upvalueindex(2));
    merge_options(L, "strategy " + quote(name), 1, 2);
    auto words = words_of(L, lua_gettop(L));
    const int options = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, lua_upvalueindex(3));
    const int function = luaL_ref(L, LUA_REGISTRYINDEX);
    // Uses the main thread of Lua, since a coroutine may no longer exist when the strategy is used.
    auto strategy = std::make_shared<LuaStrategy>(state_of(L).lua(), function, options, name, origin);
    push_object(L, AskedStrategy{std::move(strategy), name, origin, std::move(words)});
    return 1;
}

/// strategy.define(name [, defaults], function(program, mesh, options)) -> function(options) -> strategy
int define(lua_State* L) {
    check_text(L, 1);
    if (lua_gettop(L) == 2) {
        lua_pushnil(L);
        lua_insert(L, 2);
    } else {
        check_table(L, 2, "a table of default options");
    }
    check_function(L, 3);
    lua_settop(L, 3);
    lua_pushcclosure(L, guard<make_defined>, 3);
    return 1;
}

/// native.strategy(name, options [, who]) -> the C++ plugin of that name; its marks' origin names `who`, or the plugin.
int plugin(lua_State* L) {
    const std::string name = check_text(L, 1);
    const Origin origin = where(L);
    Config options("strategy." + name, origin);
    if (!lua_isnoneornil(L, 2)) {
        check_table(L, 2, "a table of options");
        fill_config(L, 2, options, origin);
    }
    Origin behalf = origin;
    if (!lua_isnoneornil(L, 3)) behalf.who = check_text(L, 3);
    std::shared_ptr<Strategy> made = state_of(L).host().make_strategy(name, options, behalf);
    options.reject_unused();
    if (Pipeline* const pipeline = made->pipeline(); pipeline && pipeline->chunks == 0)
        pipeline->chunks = chunks_needed(L, pipeline->schedule, pipeline->axis);
    push_object(L, AskedStrategy{std::move(made), behalf.who.empty() ? name : behalf.who, origin, words_of(L, 2)});
    return 1;
}

int strategy_text(lua_State* L) {
    const AskedStrategy& asked = check<AskedStrategy>(L, 1);
    push(L, fmt::format("strategy {} ({})", asked.name, asked.origin.text()));
    return 1;
}

}  // namespace

void open_strategies(lua_State* L) {
    const luaL_Reg functions[] = {{"__tostring", guard<strategy_text>}, {nullptr, nullptr}};
    new_class<AskedStrategy>(L, functions);
    lua_pop(L, 1);
    open_marks(L);
    lua_pushcfunction(L, guard<define>);
    lua_setfield(L, -2, "define");
    lua_pushcfunction(L, guard<plugin>);
    lua_setfield(L, -2, "strategy");
}

}  // namespace orrery::lua
