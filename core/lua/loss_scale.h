#pragma once
#include <memory>
#include <optional>

#include "lua/fields.h"
#include "lua/tape.h"

namespace orrery::lua {

/// How gradients of low precision are kept from vanishing: they are computed times a scale that grows while they are
/// finite and falls when they are not (Micikevicius et al. 2018). The scale is of the sum of losses, not of their mean.
struct LossScale {
    double initial = 1024, growth = 2, backoff = 0.5, least = 0x1p-14, most = 32768;
    int64_t interval = 1000;                          ///< finite steps in a row until it grows
    ValueId scale = none, good = none, steps = none;  ///< states: the scale, finite steps in a row, updates so far
};

/// The field `loss_scale` of train_with: true, false, or a table of LossScale's numbers. By default on for f16.
std::optional<LossScale> read_loss_scale(lua_State* L, Fields& fields, DType precision);
/// Declares the states.
void add_loss_scale(Builder& builder, LossScale& scale, const Origin& origin);
/// update:loss_scale() -> { scale, good, steps: states; growth, backoff, interval, least, most: numbers }, or nil.
void push_loss_scale(lua_State* L, const std::shared_ptr<Tape>& tape);

}  // namespace orrery::lua
