// Kernels that are more than one call of the table.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

/// AdamW joins with others of its kind.
std::unique_ptr<Prepared> prepare_adamw(const Spec& spec);

}  // namespace orrery::kernels::cuda
