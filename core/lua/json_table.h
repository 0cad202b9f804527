#pragma once
#include "base/json_fwd.h"
#include "lua/stack.h"

namespace orrery::lua {

/// Pushes it as tables; null is `native.null`: an absent key may mean something else.
void push_json(lua_State* L, const Json& value);

/// The value at `index`, which push_json or a script made: keys of objects in alphabetical order. `what`: for errors.
/// Throws Error at the script line for what JSON cannot hold.
Json json_of(lua_State* L, int index, std::string_view what);

}  // namespace orrery::lua
