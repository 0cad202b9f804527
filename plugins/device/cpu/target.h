#pragma once

#include "kernels/rules/rules.h"

namespace orrery::cpu_device {

/// What the CPU adds to the rules of kernels.
kernels::rules::Target target(const kernels::Kernels& kernels);

}  // namespace orrery::cpu_device
