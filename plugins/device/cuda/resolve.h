// From the core's words for an op to the kernels'.
#pragma once

#include "kernels/cuda/kernels.h"
#include "orrery/device.h"

namespace orrery::cuda_device {

/// The same op, attributes and operands. Throws Error with the reason where the op has no such operands.
kernels::cuda::Spec spec_of(const KernelSpec& spec);

}  // namespace orrery::cuda_device
