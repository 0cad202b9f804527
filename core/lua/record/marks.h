#pragma once
#include <memory>
#include <string_view>

#include "lua/record/tape.h"

namespace orrery::lua {

/// What a strategy's function gets: (program, mesh, options).
void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape);
void push_mesh(lua_State* L, const Mesh& mesh);
/// Throws outside of a strategy's function.
Tape& annotating(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function);
/// Whose mark it is: the strategy, and the line that asked for it.
Origin mark_origin(const Tape& tape);
/// Classes of the above.
void open_annotated(lua_State* L);
/// All of these, and R, P and S into the table on top of the stack.
void open_marks(lua_State* L);

}  // namespace orrery::lua
