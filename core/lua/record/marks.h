#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "lua/record/tape.h"

namespace orrery::lua {

/// Push the arguments of a strategy's function: the program to annotate, and the mesh.
void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape);
void push_mesh(lua_State* L, const Mesh& mesh);
/// Returns the tape that a strategy's function annotates. Throws Error for a call of `function` outside of a strategy.
Tape& annotating(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function);
/// Returns the origin of a strategy's marks: the strategy's name, and the script line that asked for the strategy.
Origin mark_origin(const Tape& tape);
/// Pushes a list of the ops that `wanted` selects, for a strategy that calls `function`: tables with kind, scope,
/// origin, forward, inputs and outputs.
void push_ops(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function,
              const std::function<bool(const Op&)>& wanted);
/// Pushes one op as such a table.
void push_op(lua_State* L, const std::shared_ptr<Tape>& tape, const Op& op);
void open_annotated(lua_State* L);
/// Registers the Lua classes for marks, with methods, and adds R, P and S to the table on top of the stack.
void open_marks(lua_State* L);

}  // namespace orrery::lua
