#include "lua/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"

namespace orrery::lua {

Fields::Fields(lua_State* L, int index, std::string function)
    : L_(L), index_(lua_isnoneornil(L, index) ? 0 : lua_absindex(L, index)), function_(std::move(function)) {
    if (index_) check_table(L, index_, "a table of options");
}

void Fields::push_field(std::string_view key) {
    if (std::ranges::find(asked_, key) == asked_.end()) asked_.emplace_back(key);
    if (!index_) return lua_pushnil(L_);
    push(L_, key);
    lua_rawget(L_, index_);
}

bool Fields::has(std::string_view key) {
    push_field(key);
    const bool found = !lua_isnil(L_, -1);
    lua_pop(L_, 1);
    return found;
}

void Fields::wrong(std::string_view key, std::string_view what) {
    push_field(key);
    fail(L_, fmt::format("{}: {} is {}, expected {}", function_, key, type_text(L_, -1), what));
}

std::optional<bool> Fields::flag(std::string_view key) {
    if (!has(key)) return std::nullopt;
    push_field(key);
    if (!lua_isboolean(L_, -1)) wrong(key, "true or false");
    const bool value = lua_toboolean(L_, -1);
    lua_pop(L_, 1);
    return value;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t least) {
    if (!has(key)) return std::nullopt;
    push_field(key);
    int is_integer = 0;
    const int64_t value = lua_type(L_, -1) == LUA_TNUMBER ? lua_tointegerx(L_, -1, &is_integer) : 0;
    if (!is_integer) wrong(key, "an integer");
    if (value < least) wrong(key, fmt::format("at least {}", least));
    lua_pop(L_, 1);
    return value;
}

std::optional<double> Fields::number(std::string_view key) {
    if (!has(key)) return std::nullopt;
    push_field(key);
    if (lua_type(L_, -1) != LUA_TNUMBER) wrong(key, "a number");
    const double value = lua_tonumber(L_, -1);
    lua_pop(L_, 1);
    return value;
}

std::optional<std::string> Fields::text(std::string_view key) {
    if (!has(key)) return std::nullopt;
    push_field(key);
    if (lua_type(L_, -1) != LUA_TSTRING) wrong(key, "a text");
    size_t size = 0;
    const char* data = lua_tolstring(L_, -1, &size);
    std::string value(data, size);
    lua_pop(L_, 1);
    return value;
}

std::vector<std::string> Fields::texts(std::string_view key) {
    std::vector<std::string> out;
    if (!has(key)) return out;
    push_field(key);
    if (!lua_istable(L_, -1)) wrong(key, "a list of texts");
    for (lua_Integer i = 1; lua_rawgeti(L_, -1, i) != LUA_TNIL; ++i) {
        if (lua_type(L_, -1) != LUA_TSTRING) wrong(key, "a list of texts");
        out.emplace_back(lua_tostring(L_, -1));
        lua_pop(L_, 1);
    }
    lua_pop(L_, 2);
    return out;
}

std::vector<int64_t> Fields::integers(std::string_view key) {
    std::vector<int64_t> out;
    if (!has(key)) return out;
    push_field(key);
    if (!lua_istable(L_, -1)) wrong(key, "a list of integers");
    for (lua_Integer i = 1; lua_rawgeti(L_, -1, i) != LUA_TNIL; ++i) {
        int is_integer = 0;
        out.push_back(lua_tointegerx(L_, -1, &is_integer));
        if (!is_integer || lua_type(L_, -1) != LUA_TNUMBER) wrong(key, "a list of integers");
        lua_pop(L_, 1);
    }
    lua_pop(L_, 2);
    return out;
}

void Fields::finish(bool with_list) {
    if (!index_) return;
    push_sorted_keys(L_, index_);
    for (lua_Integer i = 1; lua_rawgeti(L_, -1, i) != LUA_TNIL; ++i) {
        if (with_list && lua_isinteger(L_, -1)) {
            lua_pop(L_, 1);
            continue;
        }
        if (lua_type(L_, -1) != LUA_TSTRING)
            fail(L_, fmt::format("{}: options must have names, found {} as a key\n  write name = value", function_,
                                 type_text(L_, -1)));
        const std::string key = lua_tostring(L_, -1);
        lua_pop(L_, 1);
        if (std::ranges::find(asked_, key) != asked_.end()) continue;
        fail(L_, fmt::format("{}: unknown option {}{}", function_, quote(key), choices("known", key, asked_)));
    }
    lua_pop(L_, 2);
}

}  // namespace orrery::lua
