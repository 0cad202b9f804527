#pragma once
#include "lua/record/tape.h"

namespace orrery::lua {

/// Must be called where the function of program:also reads what a batch gives: its program then takes a batch, and its
/// updates are guarded as those of an optimizer. No effect in an optimizer.
void read_batch(lua_State* L, Tape& tape);
/// Returns the value of p:grad() in an optimizer's function: the gradient without the loss scale, unless the function
/// handles the scale itself.
ValueId gradient_of(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId param);
/// Returns the value that update:set writes to `target`: `value` when the step's gradients are finite, otherwise the
/// old value. Returns `value` unchanged when the optimizer's function handles the loss scale itself.
ValueId guarded(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId target, ValueId value);
/// Implements update:states(apply): the states of o.state take their next values in steps in which `apply`, u8 [], is
/// not 0. Throws Error unless update:loss_scale() came before, and at a second call.
void guard_states(lua_State* L, Tape& tape, ValueId apply);
/// Calls guard_states with the library's guard, unless the function has called update:states. Throws Error if the
/// function handles the loss scale itself.
void require_states(lua_State* L, const std::shared_ptr<Tape>& tape);
/// Implements update:loss_scale(): from this call on, the optimizer's function itself handles the loss scale and skips
/// updates that are not finite. Throws Error after p:grad() or update:set.
void ask_for_scale(lua_State* L, Tape& tape);

/// Pushes the argument of an optimizer's function.
void push_update(lua_State* L, const std::shared_ptr<Tape>& tape);

}  // namespace orrery::lua
