#pragma once
#include "lua/record/tape.h"

namespace orrery::lua {

/// p:grad() in an optimizer's function: without the loss scale, unless the function has asked for that.
ValueId gradient_of(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId param);
/// What update:set writes: `value` where the step's gradients are finite, else what the target has. As it is where the
/// function has asked for the loss scale.
ValueId guarded(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId target, ValueId value);
/// update:loss_scale(): from here on scale and guard are the function's own. Throws after p:grad() or update:set.
void ask_for_scale(lua_State* L, Tape& tape);

/// What an optimizer's function gets.
void push_update(lua_State* L, const std::shared_ptr<Tape>& tape);

}  // namespace orrery::lua
