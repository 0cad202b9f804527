// What a GPU can do, measured.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/kernels.h"
#include "orrery/device.h"

namespace orrery::cuda_device {

/// Best rate of a large dense product in FLOP/s, operands drawn at random; 0 when memory or a kernel is missing. About
/// 20 ms on a large GPU.
double measure_product(kernels::cuda::Context& context, kernels::Type type);

/// Best rate of a copy inside the GPU's memory, in bytes read and written per second; 0 when memory is missing.
double measure_copy(cudaStream_t stream);

}  // namespace orrery::cuda_device
