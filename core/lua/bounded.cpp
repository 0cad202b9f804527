// Wraps standard Lua functions that process many elements in one instruction, so that they count each element as one.
#include <fmt/format.h>

#include <bit>

#include "lua/libraries.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

using Count = uint64_t (*)(lua_State*);

uint64_t between(lua_Integer first, lua_Integer last) {
    return last < first ? 0 : static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
}

/// Returns the argument at `index` if it is an integer, otherwise `fallback`; the library's function throws for others.
lua_Integer integer(lua_State* L, int index, lua_Integer fallback) {
    int is_integer = 0;
    const lua_Integer value = lua_tointegerx(L, index, &is_integer);
    return is_integer ? value : fallback;
}

/// Returns the length of argument 1 as the Lua libraries compute it, with __len.
lua_Integer length(lua_State* L) {
    const bool has = lua_istable(L, 1) || luaL_getmetafield(L, 1, "__len") != LUA_TNIL;
    return has ? luaL_len(L, 1) : 0;
}

uint64_t nothing(lua_State*) { return 0; }
uint64_t of_move(lua_State* L) { return between(integer(L, 2, 1), integer(L, 3, 0)); }
uint64_t of_insert(lua_State* L) { return lua_gettop(L) < 3 ? 0 : between(integer(L, 2, 1), length(L)); }
uint64_t of_remove(lua_State* L) { return lua_gettop(L) < 2 ? 0 : between(integer(L, 2, 1), length(L)); }
uint64_t of_concat(lua_State* L) {
    return between(integer(L, 3, 1), lua_isnoneornil(L, 4) ? length(L) : integer(L, 4, 0));
}
uint64_t of_unpack(lua_State* L) {
    return between(integer(L, 2, 1), lua_isnoneornil(L, 3) ? length(L) : integer(L, 3, 0));
}
uint64_t of_rep(lua_State* L) { return between(1, integer(L, 2, 0)); }
uint64_t of_sort(lua_State* L) {
    const uint64_t n = between(1, length(L));
    const auto comparisons = static_cast<uint64_t>(std::bit_width(n));
    return n > UINT64_MAX / 64 ? UINT64_MAX : n * comparisons;
}

/// Counts the elements of a call as instructions, then calls the library's function, which is upvalue 1.
template <Count count>
int counted(lua_State* L) {
    State& state = state_of(L);
    state.see(L);
    const int top = lua_gettop(L);
    const uint64_t elements = count(L);
    lua_settop(L, top);
    state.charge(L, elements);
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/// Replaces setmetatable, without __gc: a finalizer would run without limits, and at a different time on every rank.
int set_metatable(lua_State* L) {
    if (lua_istable(L, 2)) {
        lua_pushstring(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            fail(L,
                 "setmetatable: __gc is not supported: garbage collection runs at different times on each rank\n"
                 "  release resources explicitly, or declare variables <close> with __close");
        lua_pop(L, 1);
    }
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

void replace(lua_State* L, const char* library, const char* name, lua_CFunction by) {
    if (lua_getglobal(L, library) == LUA_TTABLE) {
        lua_getfield(L, -1, name);
        lua_pushcclosure(L, by, 1);
        lua_setfield(L, -2, name);
    }
    lua_pop(L, 1);
}

}  // namespace

void bound_standard(lua_State* L) {
    replace(L, "table", "move", guard<counted<of_move>>);
    replace(L, "table", "insert", guard<counted<of_insert>>);
    replace(L, "table", "remove", guard<counted<of_remove>>);
    replace(L, "table", "sort", guard<counted<of_sort>>);
    replace(L, "table", "concat", guard<counted<of_concat>>);
    replace(L, "table", "unpack", guard<counted<of_unpack>>);
    replace(L, "string", "rep", guard<counted<of_rep>>);
    for (const char* name : {"find", "match", "gmatch", "gsub"}) replace(L, "string", name, guard<counted<nothing>>);
    replace(L, "_G", "collectgarbage", guard<counted<nothing>>);
    replace(L, "_G", "setmetatable", guard<set_metatable>);
    replace(L, "debug", "setmetatable", guard<set_metatable>);
}

}  // namespace orrery::lua
