#pragma once
#include <memory>
#include <string>

#include "lua/record/tape.h"
#include "lua/stack.h"

namespace orrery::lua {

/// Pushes the function add(kind, inputs, attributes, made) of a tape that is open for `decompose`; `of`: a value of it.
void push_add(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId of);

/// The lines of a file that define the Lua function on top of the stack; "" where they are not known.
std::string text_of_function(lua_State* L);

/// Reads a list of values of the tape at a stack index; `name` says what they are.
std::vector<ValueId> check_values(lua_State* L, int index, const std::shared_ptr<Tape>& tape, const std::string& name);

}  // namespace orrery::lua
