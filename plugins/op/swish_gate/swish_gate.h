// The formulas, for CPU and GPU.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define SWISH_GATE_ANYWHERE __host__ __device__ inline
#else
#define SWISH_GATE_ANYWHERE inline
#endif

namespace swish_gate {

/// 1 / (1 + exp(-x)), without overflow for x of either sign.
SWISH_GATE_ANYWHERE float sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
SWISH_GATE_ANYWHERE double sigmoid(double x) {
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/// y = x s g, where s = sigmoid(beta x).
template <class T>
SWISH_GATE_ANYWHERE T value(T x, T g, T beta) {
    return x * sigmoid(beta * x) * g;
}

/// dx = dy g (s + beta x s (1 - s)), dg = dy x s.
template <class T>
SWISH_GATE_ANYWHERE void gradient(T x, T g, T dy, T beta, T& dx, T& dg) {
    const T s = sigmoid(beta * x);
    dx = dy * g * (s + beta * x * s * (1 - s));
    dg = dy * x * s;
}

enum class Type : std::uint8_t { f32, bf16, f16 };

/// Defined in swish_gate.cu. `stream`: a cudaStream_t; n elements of one type in GPU memory. Throws std::runtime_error
/// with CUDA's error text when the launch fails.
void launch_value(void* stream, Type type, const void* x, const void* g, void* y, std::int64_t n, float beta);
void launch_gradient(void* stream, Type type, const void* x, const void* g, const void* dy, void* dx, void* dg,
                     std::int64_t n, float beta);

}  // namespace swish_gate
