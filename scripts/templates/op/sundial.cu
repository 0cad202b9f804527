// The kernel of a GPU; compiled where orrery was built with CUDA.
#include <algorithm>
#include <cstdint>

namespace {

constexpr int threads = 256;

__global__ void waves(const float* x, float* y, int64_t n, float rate) {
    for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < n; i += int64_t{gridDim.x} * threads) {
        const float wave = sinf(rate * x[i]);
        y[i] = x[i] + wave * wave / rate;
    }
}

}  // namespace

const char* sundial_on_gpu(void* stream, const float* x, float* y, int64_t n, float rate) {
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((n + threads - 1) / threads, 1, 8192));
    waves<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(x, y, n, rate);
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
