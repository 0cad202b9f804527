#pragma once
#include <memory>
#include <string_view>

#include "lua/record/tape.h"

namespace orrery::lua {

/// Push the arguments of a strategy's function: the program, and the mesh.
void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape);
void push_mesh(lua_State* L, const Mesh& mesh);
/// Returns the tape when a strategy's function is running; throws Error otherwise.
Tape& annotating(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function);
/// Returns the origin of marks: the strategy, and the line that asked for it.
Origin mark_origin(const Tape& tape);
/// Registers the classes of program and mesh.
void open_annotated(lua_State* L);
/// Registers all mark classes and methods, and adds R, P and S to the table on top of the stack.
void open_marks(lua_State* L);

}  // namespace orrery::lua
