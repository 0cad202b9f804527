#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct lua_State;

namespace orrery::lua {

/// Opens the libraries that scripts may use: base without dofile, loadfile and bytecode; string without dump; table,
/// math (seeded), utf8, coroutine; and those of `allow`: os, io, debug. `pairs` visits 1..n, then texts in alphabetical
/// order, so that the order is the same on all ranks.
void open_standard(lua_State* L, const std::vector<std::string>& allow, int64_t seed);

/// Makes library functions count the elements that they process as instructions. Makes setmetatable refuse __gc.
void bound_standard(lua_State* L);

/// Compiles Lua text (no bytecode), named `shown` in errors, and pushes the function. Throws or raises on bad syntax.
void load_text(lua_State* L, const std::string& text, const std::string& shown);

}  // namespace orrery::lua
