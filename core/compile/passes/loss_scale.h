#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Settings of dynamic loss scaling for low-precision gradients (Micikevicius et al. 2018). The loss, a sum, is
/// multiplied by a scale, which grows while gradients are finite and falls when they are not.
struct LossScale {
    double initial = 1024, growth = 2, backoff = 0.5, least = 0x1p-14, most = 32768;
    int64_t interval = 1000;  ///< consecutive steps with finite gradients before the scale grows
};

/// Result with the sum of squares of all gradients. A program that has it skips the update if the sum is not finite.
constexpr std::string_view guard_name = "update.sumsq";

/// Adds the states of loss scaling to a program:
///
///     %7 loss_scale       = state {kind=ones, scale=1024.0}  f32[]
///     %8 loss_scale.good  = state {kind=ones, scale=0.0}     f32[]   consecutive finite steps
///     %9 loss_scale.steps = state {kind=ones, scale=0.0}     f32[]   updates so far
void add_loss_scale(Program& program, const LossScale& scale, const Origin& origin);
/// The names of these states.
constexpr std::array<std::string_view, 3> loss_scale_states{"loss_scale", "loss_scale.good", "loss_scale.steps"};

}  // namespace orrery
