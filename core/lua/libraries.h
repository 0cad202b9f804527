#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct lua_State;

namespace orrery::lua {

/// Opens the libraries that scripts may use: base without dofile, loadfile and bytecode; string without dump; table,
/// math (seeded), utf8, coroutine; and those of `allow`: os, io, debug. `pairs` visits keys in order: 1..n, then texts
/// alphabetically, so that every rank sees one order.
void open_standard(lua_State* L, const std::vector<std::string>& allow, int64_t seed);

/// Lets functions that work off a count charge it against the limits first, and refuses __gc.
void bound_standard(lua_State* L);

/// Pushes the compiled text. Throws or raises on a syntax error; bytecode is refused.
void load_text(lua_State* L, const std::string& text, const std::string& shown);

}  // namespace orrery::lua
