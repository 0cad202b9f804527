// What all calls of the stand-in share: the thread's GPU and its last error.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace orrery::standin {

/// Keeps a failure for the thread's next cudaGetLastError, and gives it back.
cudaError_t told(cudaError_t status);

int current_device();

/// Queues what a kernel of the thread's GPU does, as a launch does: `make` is called now, to read the operands'
/// addresses, and what it returns later. Operands out of the GPU's reach break it.
cudaError_t launch(cudaStream_t stream, const std::function<std::function<void()>()>& make);

}  // namespace orrery::standin
