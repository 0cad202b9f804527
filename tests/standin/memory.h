// Memory of the GPUs of the stand-in, and the host's that they may reach.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>

namespace orrery::standin {

constexpr int gpus = 8;
/// Of each GPU. Too small for the device's measurements of its speed (192 MiB), which mean nothing here.
constexpr size_t gpu_bytes = size_t{160} << 20;

/// What a kernel does wrong; its GPU is broken from then on, as after a fault of a real one.
class KernelFault : public std::runtime_error {
public:
    KernelFault(cudaError_t status, const std::string& why) : std::runtime_error(why), status(status) {}
    cudaError_t status;
};

/// A piece of memory. That of a GPU is at addresses which fault when host code touches them; its bytes are kept
/// elsewhere. Pinned memory is kept where it is.
struct Allocation {
    char* at = nullptr;
    char* kept = nullptr;
    size_t bytes = 0;
    cudaMemoryType type = cudaMemoryTypeUnregistered;
    int device = -1;
};

/// Aligned to a page. Begins as NaN (16 MiB of a GPU, 1 of pinned memory), where somebody
/// counts on zeros.
cudaError_t allocate(cudaMemoryType type, int device, size_t bytes, void** data);
/// false: there is no such allocation. Nothing may run that uses it.
bool release(cudaMemoryType type, void* data);
/// type cudaMemoryTypeUnregistered: CUDA knows nothing of it.
Allocation allocation_of(const void* data);
size_t bytes_in_use(int device);

/// Where the `bytes` bytes of an address lie for whoever plays the GPU. Throws KernelFault where a GPU has no way to
/// them. null stays null.
void* kept(const void* data, size_t bytes = 0);

}  // namespace orrery::standin
