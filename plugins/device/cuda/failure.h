// CUDA's status codes as errors of the device.
#pragma once

#include <string>

#include "kernels/cuda/check.h"
#include "orrery/error.h"

namespace orrery::cuda_device {

/// Throws Error("device cuda: WHAT: cudaErrorNAME, ..."), Fault::failed.
inline void require(cudaError_t status, const std::string& what) {
    if (status != cudaSuccess)
        throw Error("device cuda: " + what + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status),
                    Fault::failed);
}

}  // namespace orrery::cuda_device
