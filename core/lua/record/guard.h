#pragma once
#include "lua/record/tape.h"

namespace orrery::lua {

/// p:grad() in an optimizer's function: the gradient without the loss scale, unless the function handles the scale
/// itself.
ValueId gradient_of(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId param);
/// The value that update:set writes: `value` when the step's gradients are finite, else the target's old value.
/// Unguarded when the optimizer's function handles the loss scale itself.
ValueId guarded(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId target, ValueId value);
/// update:loss_scale(): from now on the function handles scale and guard itself. Throws after p:grad() or update:set.
void ask_for_scale(lua_State* L, Tape& tape);

/// Pushes the argument of an optimizer's function.
void push_update(lua_State* L, const std::shared_ptr<Tape>& tape);

}  // namespace orrery::lua
