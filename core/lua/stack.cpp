#include "lua/stack.h"

#include <fmt/format.h>

#include <algorithm>

#include "lua/state.h"

namespace orrery::lua {

namespace {

/// The Lua error value that holds a C++ exception while Lua unwinds the stack.
struct Raised {
    std::exception_ptr error;
};

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    }
}

}  // namespace

template <>
struct Class<Raised> {
    static constexpr const char* name = "orrery.error";
    static constexpr const char* what = "an error";
};

namespace {

int raised_text(lua_State* L) {
    push(L, text_of(check<Raised>(L, 1).error));
    return 1;
}

}  // namespace

void open_errors(lua_State* L) {
    const luaL_Reg functions[] = {{"__tostring", guard<raised_text>}, {nullptr, nullptr}};
    new_class<Raised>(L, functions);
    lua_pop(L, 1);
}

State& state_of(lua_State* L) { return **static_cast<State**>(lua_getextraspace(L)); }

bool is_plumbing(std::string_view file) {
    if (!file.starts_with("orrery/")) return false;
    return !file.starts_with("orrery/models/") && !file.starts_with("orrery/strategies/") &&
           !file.starts_with("orrery/collectives/");
}

namespace {

int stand_in(lua_State* L) {
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

bool is_stand_in(lua_State* L, lua_Debug& frame) {
    lua_getinfo(L, "f", &frame);
    const bool found = lua_tocfunction(L, -1) == guard<stand_in>;
    lua_pop(L, 1);
    return found;
}

}  // namespace

void call_for(lua_State* L, int arguments, int results, const Origin& asked) {
    state_of(L).stand_in = asked;
    lua_pushcfunction(L, guard<stand_in>);
    lua_insert(L, -(arguments + 2));
    lua_call(L, arguments + 1, results);
}

Origin where(lua_State* L) {
    Origin plumbing;
    lua_Debug frame;
    constexpr int deepest = 200;  // max frames searched: lua_getstack(n) takes n steps
    for (int level = 0; level < deepest && lua_getstack(L, level, &frame); ++level) {
        lua_getinfo(L, "Sl", &frame);
        if (*frame.what == 'C' && is_stand_in(L, frame)) return state_of(L).stand_in;
        if (frame.currentline <= 0 || frame.source[0] != '@') continue;
        Origin origin{"", frame.source + 1, frame.currentline, 0};
        if (!is_plumbing(origin.file)) return origin;
        if (plumbing.file.empty()) plumbing = origin;
    }
    return plumbing;
}

void push_exception(lua_State* L, std::exception_ptr error) { push_object(L, Raised{std::move(error)}); }

int raise(lua_State* L, std::exception_ptr error) {
    push_exception(L, std::move(error));
    return lua_error(L);
}

std::exception_ptr exception_at(lua_State* L, int index) {
    const Raised* raised = test<Raised>(L, index);
    return raised ? raised->error : nullptr;
}

std::string type_text(lua_State* L, int index) {
    switch (lua_type(L, index)) {
        case LUA_TNONE: return "nothing";
        case LUA_TNIL: return "nil";
        case LUA_TBOOLEAN: return lua_toboolean(L, index) ? "true" : "false";
        case LUA_TNUMBER: {
            const std::string number = luaL_tolstring(L, index, nullptr);
            lua_pop(L, 1);
            return "the number " + number;
        }
        case LUA_TSTRING: return fmt::format("the text \"{}\"", std::string_view(lua_tostring(L, index)).substr(0, 60));
        case LUA_TTABLE: return "a table";
        case LUA_TFUNCTION: return "a function";
        case LUA_TUSERDATA: {
            if (!luaL_getmetafield(L, index, "__metatable")) return "userdata";
            const std::string what = lua_isstring(L, -1) ? lua_tostring(L, -1) : "userdata";
            lua_pop(L, 1);
            return what;
        }
        default: return luaL_typename(L, index);
    }
}

std::string function_name(lua_State* L) {
    lua_Debug frame;
    if (!lua_getstack(L, 0, &frame)) return "?";
    lua_getinfo(L, "n", &frame);
    const std::string name = frame.name ? frame.name : "?";
    static constexpr std::pair<std::string_view, std::string_view> operators[] = {
        {"add", "+"}, {"sub", "-"}, {"mul", "*"}, {"div", "/"}, {"unm", "-"}, {"pow", "^"}, {"index", "."}};
    if (frame.namewhat && std::string_view(frame.namewhat) == "metamethod")
        for (const auto& [event, sign] : operators)
            if (name == event) return std::string(sign);
    return name;
}

void fail(lua_State* L, const std::string& text) { throw Error(where(L), text); }

void bad_argument(lua_State* L, int index, const std::string& why) {
    lua_Debug frame;
    bool method = false;
    if (lua_getstack(L, 0, &frame)) {
        lua_getinfo(L, "n", &frame);
        method = frame.namewhat && std::string_view(frame.namewhat) == "method";
    }
    const std::string function = function_name(L);
    if (method && index == 1) fail(L, fmt::format("bad object for ':{}' ({})", function, why));
    fail(L, fmt::format("bad argument #{} to '{}' ({})", method ? index - 1 : index, function, why));
}

void expected(lua_State* L, int index, std::string_view what) {
    bad_argument(L, index, fmt::format("{} expected, got {}", what, type_text(L, index)));
}

int64_t check_integer(lua_State* L, int index) {
    int is_integer = 0;
    const lua_Integer value = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : 0;
    if (!is_integer) expected(L, index, "an integer");
    return value;
}

double check_number(lua_State* L, int index) {
    if (lua_type(L, index) != LUA_TNUMBER) expected(L, index, "a number");
    return lua_tonumber(L, index);
}

std::string check_text(lua_State* L, int index) {
    if (lua_type(L, index) != LUA_TSTRING) expected(L, index, "a text");
    size_t size = 0;
    const char* text = lua_tolstring(L, index, &size);
    return {text, size};
}

void check_table(lua_State* L, int index, std::string_view what) {
    if (lua_type(L, index) != LUA_TTABLE) expected(L, index, what);
}

void check_function(lua_State* L, int index) {
    if (lua_type(L, index) != LUA_TFUNCTION) expected(L, index, "a function");
}

void push(lua_State* L, std::string_view text) { lua_pushlstring(L, text.data(), text.size()); }

void push(lua_State* L, const std::vector<std::string>& texts) {
    lua_createtable(L, static_cast<int>(texts.size()), 0);
    for (size_t i = 0; i < texts.size(); ++i) {
        push(L, texts[i]);
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
}

void push(lua_State* L, const Shape& shape) {
    lua_createtable(L, static_cast<int>(shape.size()), 0);
    for (size_t i = 0; i < shape.size(); ++i) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
}

void push_sorted_keys(lua_State* L, int index) {
    index = lua_absindex(L, index);
    const auto length = static_cast<lua_Integer>(lua_rawlen(L, index));
    std::vector<std::string> texts;
    lua_newtable(L);
    const int list = lua_gettop(L);
    for (lua_Integer i = 1; i <= length; ++i) {
        lua_pushinteger(L, i);
        lua_rawseti(L, list, i);
    }
    lua_newtable(L);  // keys that are neither texts nor 1..n come last
    const int others = lua_gettop(L);
    lua_Integer other_count = 0;
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING) {
            size_t size = 0;
            const char* text = lua_tolstring(L, -1, &size);
            texts.emplace_back(text, size);
        } else if (!(lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= length)) {
            lua_pushvalue(L, -1);
            lua_rawseti(L, others, ++other_count);
        }
    }
    std::ranges::sort(texts);
    lua_Integer at = length;
    for (const std::string& text : texts) {
        push(L, text);
        lua_rawseti(L, list, ++at);
    }
    for (lua_Integer i = 1; i <= other_count; ++i) {
        lua_rawgeti(L, others, i);
        lua_rawseti(L, list, ++at);
    }
    lua_pop(L, 1);
}

}  // namespace orrery::lua
