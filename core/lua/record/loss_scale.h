#pragma once
#include <memory>
#include <optional>

#include "compile/passes/loss_scale.h"
#include "lua/fields.h"
#include "lua/record/tape.h"

namespace orrery::lua {

/// Reads the field `loss_scale` of train_with: true, false, or a table of LossScale's numbers. Default: true for f16.
std::optional<LossScale> read_loss_scale(lua_State* L, Fields& fields, DType precision);
/// update:loss_scale() -> { scale, good, steps: states; growth, backoff, interval, least, most: numbers }, or nil.
void push_loss_scale(lua_State* L, const std::shared_ptr<Tape>& tape);

}  // namespace orrery::lua
