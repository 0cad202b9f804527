#pragma once
#include "base/json_fwd.h"
#include "lua/stack.h"

namespace orrery::lua {

/// Pushes the JSON value as Lua tables. null becomes `native.null`, since a field that is nil would be an absent key.
void push_json(lua_State* L, const Json& value);

/// Returns the value at `index`, made by push_json or by a script, as JSON. Keys of objects are in alphabetical order.
/// `what` names the value in errors. Throws Error at the script line when JSON cannot represent the value.
Json json_of(lua_State* L, int index, std::string_view what);

}  // namespace orrery::lua
