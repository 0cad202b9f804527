// Turns an error that a script raised into a message with the calls that led there.
#include <fmt/format.h>

#include <typeinfo>

#include "base/text.h"
#include "lua/stack.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

constexpr int most_calls_shown = 8;
constexpr int nearest_frames = 64;
constexpr int outermost_frames = 4;

/// Returns the number of frames on the stack, by bisection, because lua_getstack(n) takes n steps.
int depth_of(lua_State* L) {
    lua_Debug frame;
    int low = 0, high = 1;
    while (lua_getstack(L, high, &frame)) low = high, high *= 2;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (lua_getstack(L, middle, &frame) ? low : high) = middle;
    }
    return low + 1;
}

/// The "called from" lines of an error in Lua, innermost call first. For a deep recursion, only both ends of the stack.
class Calls {
public:
    Calls(lua_State* L, const Origin& first) : L_(L), last_(first.text()) {
        const int depth = depth_of(L);
        const int near = depth <= nearest_frames + outermost_frames ? depth : nearest_frames;
        add(0, near);
        if (near == depth || shown_ == most_calls_shown) return;
        text += fmt::format("\n  called from {} more calls", count_text(depth - near - outermost_frames));
        add(depth - outermost_frames, depth);
    }

    std::string text;

private:
    void add(int from, int to) {
        lua_Debug frame;
        for (int level = from; level < to && shown_ < most_calls_shown && lua_getstack(L_, level, &frame); ++level) {
            lua_getinfo(L_, "Sl", &frame);
            if (frame.currentline <= 0 || frame.source[0] != '@') continue;
            const std::string line = fmt::format("{}:{}", frame.source + 1, frame.currentline);
            if (line == last_ || is_plumbing(frame.source + 1)) continue;
            last_ = line;
            text += "\n  called from " + line;
            ++shown_;
        }
    }

    lua_State* L_;
    std::string last_;
    int shown_ = 0;
};

/// Adds the "called from" lines to the message of an Error; exceptions of derived or other classes stay unchanged.
std::exception_ptr with_calls(const std::exception_ptr& error, const std::string& calls) {
    try {
        std::rethrow_exception(error);
    } catch (const Error& e) {
        if (typeid(e) == typeid(Error)) return std::make_exception_ptr(Error(e.what() + calls, e.fault()));
    } catch (const std::exception&) {
    }
    return error;
}

std::string value_text(lua_State* L, int index, int depth);

std::string key_text(lua_State* L) {
    return lua_type(L, -1) == LUA_TSTRING ? check_text(L, -1) : "[" + value_text(L, -1, 0) + "]";
}

/// Formats a table in one line, { 1, 2, code = 7 }, with its first 12 entries.
std::string table_text(lua_State* L, int index, int depth) {
    constexpr int most_entries = 12;
    index = lua_absindex(L, index);
    luaL_checkstack(L, 8, nullptr);
    push_sorted_keys(L, index);
    const int keys = lua_gettop(L);
    const auto length = static_cast<lua_Integer>(lua_rawlen(L, index));
    std::string text;
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; ++i) {
        text += text.empty() ? " " : ", ";
        if (i > most_entries) {
            text += "...";
            break;
        }
        if (i > length) text += key_text(L) + " = ";
        lua_rawget(L, index);
        text += value_text(L, -1, depth - 1);
        lua_pop(L, 1);
    }
    lua_settop(L, keys - 1);
    return text.empty() ? "{}" : "{" + text + " }";
}

std::string value_text(lua_State* L, int index, int depth) {
    if (lua_type(L, index) == LUA_TSTRING) return quote(check_text(L, index));
    if (lua_type(L, index) == LUA_TTABLE && luaL_getmetafield(L, index, "__tostring") == LUA_TNIL)
        return depth > 0 ? table_text(L, index, depth) : "{ ... }";
    if (lua_type(L, index) == LUA_TTABLE) lua_pop(L, 1);
    if (lua_type(L, index) == LUA_TFUNCTION) return "a function";
    std::string text = luaL_tolstring(L, index, nullptr);
    lua_pop(L, 1);
    return text;
}

/// Returns the message of a value raised in Lua. A text from error() starts with the script line; other texts get the
/// line here. For a table, the field `message` comes first, then the other fields.
std::string raised_text(lua_State* L, const Origin& place) {
    if (lua_type(L, 1) == LUA_TSTRING) {
        const std::string text = check_text(L, 1);  // Lua has added the line, except to errors of C functions
        return text.starts_with("C stack overflow") ? place.text() + ": " + text : text;
    }
    std::string text = place.text() + (place.file.empty() ? "" : ": ");
    if (lua_istable(L, 1)) {
        lua_pushstring(L, "message");
        if (lua_rawget(L, 1) == LUA_TSTRING) text += check_text(L, -1) + "\n  raised: ";
        lua_pop(L, 1);
    }
    return text + value_text(L, 1, 3);
}

}  // namespace

int add_calls(lua_State* L) {
    const Origin place = where(L);
    const std::string above = Calls(L, place).text + state_of(L).recorded_again;
    if (const std::exception_ptr error = exception_at(L, 1))
        push_exception(L, with_calls(error, above));
    else
        push_exception(L, std::make_exception_ptr(Error(raised_text(L, place) + above)));
    return 1;
}

}  // namespace orrery::lua
