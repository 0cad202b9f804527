#include "lua/libraries.h"

#include <fmt/format.h>

#include "base/signals.h"
#include "base/suggest.h"
#include "base/text.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// print(...): prints one line through the host, so that only one rank prints it.
int print(lua_State* L) {
    std::string line;
    const int count = lua_gettop(L);
    for (int i = 1; i <= count; ++i) {
        if (i > 1) line += '\t';
        size_t size = 0;
        const char* text = luaL_tolstring(L, i, &size);
        line.append(text, size);
        lua_pop(L, 1);
    }
    state_of(L).host().print(line);
    return 0;
}

/// load(text [, name [, mode [, env]]]): accepts text only, not bytecode or functions.
int load(lua_State* L) {
    const std::string text = check_text(L, 1);
    const std::string name = lua_isnoneornil(L, 2) ? "=(load)" : check_text(L, 2);
    const bool has_environment = !lua_isnone(L, 4);
    if (luaL_loadbufferx(L, text.data(), text.size(), name.c_str(), "t") != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (has_environment) {
        lua_pushvalue(L, 4);
        lua_setupvalue(L, -2, 1);
    }
    return 1;
}

/// Iterator that pairs() uses. Upvalues: the table, the sorted keys, the number of visited keys.
int next_sorted(lua_State* L) {
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3));
    for (;;) {
        lua_rawgeti(L, lua_upvalueindex(2), ++at);
        if (lua_isnil(L, -1)) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break;  // skips a key removed since pairs()
        lua_pop(L, 2);
    }
    lua_pushinteger(L, at);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
}

int sorted_pairs(lua_State* L) {
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    check_table(L, 1);
    lua_pushvalue(L, 1);
    push_sorted_keys(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_sorted>, 3);
    return 1;
}

void remove_field(lua_State* L, const char* library, const char* field) {
    lua_getglobal(L, library);
    lua_pushnil(L);
    lua_setfield(L, -2, field);
    lua_pop(L, 1);
}

/// Wraps os.execute and io.popen, so that programs start with default signal handling although a run blocks signals.
int start_program(lua_State* L) {
    const SignalsForChildren opened;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

void wrap_start(lua_State* L, const char* library, const char* field) {
    lua_getglobal(L, library);
    lua_getfield(L, -1, field);
    lua_pushcclosure(L, start_program, 1);
    lua_setfield(L, -2, field);
    lua_pop(L, 1);
}

void open(lua_State* L, const char* name, lua_CFunction function) {
    luaL_requiref(L, name, function, 1);
    lua_pop(L, 1);
}

}  // namespace

void open_standard(lua_State* L, const std::vector<std::string>& allow, int64_t seed) {
    open(L, "_G", luaopen_base);
    open(L, "string", luaopen_string);
    open(L, "table", luaopen_table);
    open(L, "math", luaopen_math);
    open(L, "utf8", luaopen_utf8);
    open(L, "coroutine", luaopen_coroutine);
    for (const std::string& name : allow) {
        if (name == "os") {
            open(L, "os", luaopen_os);
            wrap_start(L, "os", "execute");
        } else if (name == "io") {
            open(L, "io", luaopen_io);
            wrap_start(L, "io", "popen");
        } else if (name == "debug") {
            open(L, "debug", luaopen_debug);
        } else {
            throw Error(state_of(L).host().config().table("lua").where("allow"),
                        fmt::format("no library {}{}", quote(name), choices("known", name, {"os", "io", "debug"})));
        }
    }
    for (const char* name : {"dofile", "loadfile", "warn"}) remove_field(L, "_G", name);
    remove_field(L, "string", "dump");
    lua_pushcfunction(L, guard<print>);
    lua_setglobal(L, "print");
    lua_pushcfunction(L, guard<load>);
    lua_setglobal(L, "load");
    lua_pushcfunction(L, guard<sorted_pairs>);
    lua_setglobal(L, "pairs");
    bound_standard(L);
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "randomseed");  // ranks need the same seed; Lua seeds from the clock
    lua_pushinteger(L, seed);
    lua_call(L, 1, 0);
    lua_pop(L, 1);
    // Removes the table of loaded modules, which luaL_requiref has filled: scripts load modules by `require` only.
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
}

void load_text(lua_State* L, const std::string& text, const std::string& shown) {
    if (text.starts_with(LUA_SIGNATURE)) throw Error({"", shown, 0, 0}, "is Lua bytecode, expected a text");
    const std::string chunk = "@" + shown;
    const int status = luaL_loadbufferx(L, text.data(), text.size(), chunk.c_str(), "t");
    if (status != LUA_OK) lua_error(L);
    state_of(L).sources[shown] = text;
}

}  // namespace orrery::lua
