// Kernels that plugins bring for their ops.
#pragma once

#include <memory>

#include "kernels/cuda/kernels.h"
#include "orrery/device.h"

namespace orrery::cuda_device {

/// nullptr: no plugin brought an op of this name. Throws Error with the reason where its plugin cannot run the spec on
/// a GPU.
std::unique_ptr<kernels::cuda::Prepared> plugin_kernel(const KernelSpec& spec);

}  // namespace orrery::cuda_device
