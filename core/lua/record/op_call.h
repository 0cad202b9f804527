#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "lua/record/tape.h"

namespace orrery::lua {

/// Records an op at the current script line and pushes its outputs; returns the number of outputs.
int record(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view kind, std::vector<ValueId> inputs,
           Attributes attributes, const std::vector<Builder::DimNames>& names = {});
ValueId constant(lua_State* L, Tape& tape, double number, DType dtype);

/// Implements x:op(operands..., attributes..., { name = value }), a call of an op; the table has operands or attributes
/// by name. Upvalue 1: OpDef, light userdata.
int call_op(lua_State* L);

}  // namespace orrery::lua
