#include "lua/json_table.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace orrery::lua {

namespace {

constexpr const char* list_mark = "orrery.json_list";  // metatable of JSON lists, which distinguishes [] from {}
constexpr int deepest = 64;

bool is_list(lua_State* L, int index) {
    if (lua_rawlen(L, index) > 0) return true;
    if (lua_getmetatable(L, index) == 0) return false;
    luaL_getmetatable(L, list_mark);
    const bool same = lua_rawequal(L, -1, -2) != 0;
    lua_pop(L, 2);
    return same;
}

Json read(lua_State* L, int index, std::string_view what, int depth);

/// Throws Error if a list of `count` items has other keys, too, since a JSON list would lose them.
void refuse_named_keys(lua_State* L, int index, lua_Integer count, std::string_view what) {
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
        const int key = lua_gettop(L) - 1;
        if (lua_isinteger(L, key) && lua_tointeger(L, key) >= 1 && lua_tointeger(L, key) <= count) continue;
        const std::string text =
            lua_type(L, key) == LUA_TSTRING ? quote(check_text(L, key)) : std::string(type_text(L, key));
        fail(L, fmt::format("{} mixes a list of {} with the key {}, which JSON cannot hold\n  make it a list without "
                            "holes, or a table with only names as keys",
                            what, plural(count, "item"), text));
    }
}

Json read_table(lua_State* L, int index, std::string_view what, int depth) {
    luaL_checkstack(L, 8, "tables are nested too deeply");
    if (depth > deepest) fail(L, fmt::format("{} is nested deeper than {} tables", what, deepest));
    if (is_list(L, index)) {
        Json list = Json::array();
        for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; ++i) {
            list.push_back(read(L, lua_gettop(L), what, depth + 1));
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
        refuse_named_keys(L, index, static_cast<lua_Integer>(list.size()), what);
        return list;
    }
    Json object = Json::object();
    push_sorted_keys(L, index);
    const int keys = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        if (lua_type(L, -1) != LUA_TSTRING) fail(L, fmt::format("{} has a key that is {}", what, type_text(L, -1)));
        std::string key = check_text(L, -1);
        lua_rawget(L, index);
        Json value = read(L, lua_gettop(L), fmt::format("{}.{}", what, key), depth + 1);
        append(object, std::move(key), std::move(value));
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    return object;
}

Json read(lua_State* L, int index, std::string_view what, int depth) {
    switch (lua_type(L, index)) {
        case LUA_TBOOLEAN: return lua_toboolean(L, index) != 0;
        case LUA_TSTRING: {
            std::string text = check_text(L, index);
            if (const std::string bad = not_utf8(text); !bad.empty()) fail(L, fmt::format("{}: {}", what, bad));
            return text;
        }
        case LUA_TNUMBER:
            if (lua_isinteger(L, index)) return static_cast<int64_t>(lua_tointeger(L, index));
            if (const double value = lua_tonumber(L, index); std::isfinite(value)) return value;
            break;
        case LUA_TLIGHTUSERDATA:
            if (lua_touserdata(L, index) == nullptr) return nullptr;
            break;
        case LUA_TTABLE: return read_table(L, index, what, depth);
        default: break;
    }
    fail(L, fmt::format("{} is {}, which JSON cannot hold", what, type_text(L, index)));
}

}  // namespace

void push_json(lua_State* L, const Json& value) {
    luaL_checkstack(L, 4, "JSON is nested too deeply");
    if (value.is_boolean()) return lua_pushboolean(L, value.get<bool>());
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return lua_pushnumber(L, value.get<double>());
    if (value.is_number_integer()) return lua_pushinteger(L, value.get<int64_t>());
    if (value.is_number()) return lua_pushnumber(L, value.get<double>());
    if (value.is_string()) return push(L, value.get_ref<const std::string&>());
    if (value.is_null()) return lua_pushlightuserdata(L, nullptr);
    lua_newtable(L);
    if (value.is_array()) {
        luaL_newmetatable(L, list_mark);
        lua_setmetatable(L, -2);
    }
    lua_Integer i = 0;
    for (const auto& [key, item] : value.items()) {
        if (value.is_array()) {
            push_json(L, item);
            lua_rawseti(L, -2, ++i);
        } else {
            push(L, key);  // not lua_setfield, as the key may contain a NUL
            push_json(L, item);
            lua_rawset(L, -3);
        }
    }
}

Json json_of(lua_State* L, int index, std::string_view what) { return read(L, lua_absindex(L, index), what, 0); }

}  // namespace orrery::lua
