#pragma once
#include "lua/stack.h"
#include "orrery/config.h"

namespace orrery::lua {

/// Puts a Lua table of options in a Config, for a plugin; `origin` is the script line. Throws Error at what is no
/// number, text, flag, list or table of these.
void fill_config(lua_State* L, int index, Config& config, const Origin& origin);

}  // namespace orrery::lua
