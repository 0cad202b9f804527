#pragma once
#include "lua/stack.h"
#include "orrery/config.h"

namespace orrery::lua {

/// Copies a Lua table of options to a Config, for a plugin; `origin` is the script line. Throws Error for a value that
/// is not a number, text, flag, list or table of these.
void fill_config(lua_State* L, int index, Config& config, const Origin& origin);

}  // namespace orrery::lua
