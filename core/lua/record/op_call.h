#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "lua/record/tape.h"

namespace orrery::lua {

/// Records an op at the current script line and pushes its outputs; returns the number of outputs.
int record(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view kind, std::vector<ValueId> inputs,
           Attributes attributes, const std::vector<Builder::DimNames>& names = {});
/// Whether the attribute of an op contains dims, which count from 1 in Lua or are names.
bool names_dims(std::string_view attribute);
/// Reads an op's attribute from the stack. Names of dims are those of `x`. Throws Error for a value of another type.
Attribute attribute_at(lua_State* L, int index, const OpDef& def, const AttributeDef& attribute, const Symbol& x);
ValueId constant(lua_State* L, Tape& tape, double number, DType dtype);

/// Implements x:op(operands..., attributes..., { name = value }), a call of an op; the table has operands or attributes
/// by name. Upvalue 1: OpDef, light userdata.
int call_op(lua_State* L);

}  // namespace orrery::lua
