// GPU kernels with grid-stride loops; computed in f32, rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "swish_gate.h"

namespace swish_gate {

namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 8192;

template <class T>
__global__ void values(const T* x, const T* g, T* y, std::int64_t n, float beta) {
    const std::int64_t step = std::int64_t{gridDim.x} * threads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < n; i += step)
        y[i] = static_cast<T>(value(static_cast<float>(x[i]), static_cast<float>(g[i]), beta));
}

template <class T>
__global__ void gradients(const T* x, const T* g, const T* dy, T* dx, T* dg, std::int64_t n, float beta) {
    const std::int64_t step = std::int64_t{gridDim.x} * threads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < n; i += step) {
        float of_x = 0, of_g = 0;
        gradient(static_cast<float>(x[i]), static_cast<float>(g[i]), static_cast<float>(dy[i]), beta, of_x, of_g);
        dx[i] = static_cast<T>(of_x);
        dg[i] = static_cast<T>(of_g);
    }
}

unsigned blocks_of(std::int64_t n) {
    return static_cast<unsigned>(std::clamp<std::int64_t>((n + threads - 1) / threads, 1, most_blocks));
}

void check() {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) throw std::runtime_error(std::string("its launch: ") + cudaGetErrorString(status));
}

template <class F>
void with_type(Type type, F f) {
    if (type == Type::f32) f(float{});
    if (type == Type::bf16) f(__nv_bfloat16{});
    if (type == Type::f16) f(__half{});
}

}  // namespace

void launch_value(void* stream, Type type, const void* x, const void* g, void* y, std::int64_t n, float beta) {
    with_type(type, [&](auto t) {
        using T = decltype(t);
        values<<<blocks_of(n), threads, 0, static_cast<cudaStream_t>(stream)>>>(
            static_cast<const T*>(x), static_cast<const T*>(g), static_cast<T*>(y), n, beta);
    });
    check();
}

void launch_gradient(void* stream, Type type, const void* x, const void* g, const void* dy, void* dx, void* dg,
                     std::int64_t n, float beta) {
    with_type(type, [&](auto t) {
        using T = decltype(t);
        gradients<<<blocks_of(n), threads, 0, static_cast<cudaStream_t>(stream)>>>(
            static_cast<const T*>(x), static_cast<const T*>(g), static_cast<const T*>(dy), static_cast<T*>(dx),
            static_cast<T*>(dg), n, beta);
    });
    check();
}

}  // namespace swish_gate
