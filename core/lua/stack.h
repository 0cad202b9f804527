#pragma once
#include <lua.hpp>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/error.h"
#include "orrery/tensor.h"

/// A thin binding in the style of LPeg: functions over lua_State*, typed userdata, and a guard that turns C++
/// exceptions into Lua errors and back. Code with this binding runs inside one protected call.
namespace orrery::lua {

class State;

/// Returns the State that owns this Lua state; all of its coroutines have the same State.
State& state_of(lua_State* L);

/// Returns the current script line: the innermost line of a script, or of a model or strategy of the library. Lines of
/// the library's forwarding modules (orrery/nn.lua, ...) count only when there is no other line.
Origin where(lua_State* L);
/// Calls lua_call on behalf of an earlier script line: where() returns `asked` while a forwarding module is called.
void call_for(lua_State* L, int arguments, int results, const Origin& asked);

void push_exception(lua_State* L, std::exception_ptr error);
int raise(lua_State* L, std::exception_ptr error);
/// Returns the exception in an error value; nullptr when the value is something else (a string, a table).
std::exception_ptr exception_at(lua_State* L, int index);

/// Message handler of a protected call: turns any error value into an exception with its calls, while the stack exists.
int add_calls(lua_State* L);

/// Wraps a C function for Lua: its exceptions become Lua errors. Lua's own unwinding passes through unchanged.
template <int (*function)(lua_State*)>
int guard(lua_State* L) {
    std::exception_ptr error;
    try {
        return function(L);
    } catch (const std::exception&) {
        error = std::current_exception();
    }
    return raise(L, std::move(error));
}

// ---- arguments: each throws "bad argument #1 to 'matmul' (a value expected, got a number)" at the script line
std::string type_text(lua_State* L, int index);  ///< describes a value: "a number", "nil", "a value"
std::string function_name(lua_State* L);
[[noreturn]] void bad_argument(lua_State* L, int index, const std::string& why);
[[noreturn]] void expected(lua_State* L, int index, std::string_view what);
int64_t check_integer(lua_State* L, int index);
double check_number(lua_State* L, int index);
std::string check_text(lua_State* L, int index);
void check_table(lua_State* L, int index, std::string_view what = "a table");
void check_function(lua_State* L, int index);

[[noreturn]] void fail(lua_State* L, const std::string& text);

void push(lua_State* L, std::string_view text);
void push(lua_State* L, const std::vector<std::string>& texts);
void push(lua_State* L, const Shape& shape);

// ---- typed userdata
template <class T>
struct Class;  ///< specialised for each type: static constexpr const char* name, what ("orrery.value", "a value")

template <class T>
int destroy(lua_State* L) {
    static_cast<T*>(lua_touserdata(L, 1))->~T();
    return 0;
}

/// Makes the metatable of T with __gc, __name, no access from scripts, and the given functions. Leaves it on the stack.
template <class T>
void new_class(lua_State* L, const luaL_Reg* functions) {
    luaL_newmetatable(L, Class<T>::name);
    lua_pushcfunction(L, destroy<T>);
    lua_setfield(L, -2, "__gc");
    lua_pushstring(L, Class<T>::what);
    lua_setfield(L, -2, "__metatable");
    luaL_setfuncs(L, functions, 0);
}

/// Registers the Lua class of T, which has methods only; leaves the stack unchanged.
template <class T>
void add_class(lua_State* L, const luaL_Reg* methods) {
    const luaL_Reg nothing[] = {{nullptr, nullptr}};
    new_class<T>(L, nothing);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

template <class T>
T& push_object(lua_State* L, T object) {
    void* place = lua_newuserdatauv(L, sizeof(T), 0);
    T* made = new (place) T(std::move(object));
    luaL_setmetatable(L, Class<T>::name);
    return *made;
}

template <class T>
T* test(lua_State* L, int index) {
    return static_cast<T*>(luaL_testudata(L, index, Class<T>::name));
}

template <class T>
T& check(lua_State* L, int index) {
    T* object = test<T>(L, index);
    if (!object) expected(L, index, Class<T>::what);
    return *object;
}

/// Pushes a list of the keys of the table at `index`: 1..n first, then texts in alphabetical order, then the rest in no
/// particular order.
void push_sorted_keys(lua_State* L, int index);

}  // namespace orrery::lua
