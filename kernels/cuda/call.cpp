#include "kernels/cuda/call.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "kernels/cuda/check.h"

namespace orrery::kernels::cuda {

void check_launch() { check(cudaGetLastError(), "launch"); }

void allow_shared(const void* kernel, i64 bytes) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "asking for shared memory");
}

void* Call::take(i64 bytes) {
    const i64 from = used;
    used += divide_up(bytes, 256) * 256;
    if (rehearsal) return nullptr;
    if (used > capacity_) throw std::logic_error("a kernel takes more scratch than its rehearsal did");
    return memory_ + from;
}

void Call::begin(void* memory, i64 bytes) {
    memory_ = static_cast<unsigned char*>(memory);
    capacity_ = bytes;
    used = 0;
}

}  // namespace orrery::kernels::cuda
