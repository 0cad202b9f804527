// Converts status codes of CUDA's libraries to exceptions. For sources of kernels/cuda and the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/context.h"

namespace orrery::kernels::cuda {

/// Throws Failure("WHAT: cudaErrorNAME, the driver's sentence"). After a launch: check(cudaGetLastError(),
/// "layernorm").
void check(cudaError_t status, const char* what);
/// A cublasStatus_t.
void check_blas(int status, const char* what);
/// A cudnnStatus_t, with cuDNN's own last message.
void check_dnn(int status, const char* what);

}  // namespace orrery::kernels::cuda
