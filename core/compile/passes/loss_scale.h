#pragma once
#include <cstdint>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// How gradients of low precision are kept from vanishing: they are computed times a scale that grows while they are
/// finite and falls when they are not (Micikevicius et al. 2018). The scale is of the sum of losses, not of their mean.
struct LossScale {
    double initial = 1024, growth = 2, backoff = 0.5, least = 0x1p-14, most = 32768;
    int64_t interval = 1000;  ///< finite steps in a row until it grows
};

/// The result of a guarded update without a loss scale: the sum of the squares of all gradients. The update is made
/// where it is finite.
constexpr std::string_view guard_name = "update.sumsq";

/// Declares its states: "loss_scale", "loss_scale.good" (finite steps in a row) and "loss_scale.steps" (updates so
/// far).
void add_loss_scale(Program& program, const LossScale& scale, const Origin& origin);

}  // namespace orrery
