// Kernels that are more than one call of the table.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

/// AdamW over one tensor; consecutive ones join in one launch.
std::unique_ptr<Prepared> prepare_adamw(const Spec& spec);

}  // namespace orrery::kernels::cuda
