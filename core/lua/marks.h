#pragma once
#include <memory>

#include "lua/tape.h"

namespace orrery::lua {

/// What a strategy's function gets: (program, mesh, options).
void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape);
void push_mesh(lua_State* L, const Mesh& mesh);
/// Classes of the above, and R and S into the table on top of the stack.
void open_marks(lua_State* L);

}  // namespace orrery::lua
