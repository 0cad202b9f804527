// Elementwise mathematics, written once for float, double, the CPU's vectors and CUDA.
//
// T is float, double or a vector with the usual operators; exp, tanh, erf, sqrt and select are found in its namespace.
#pragma once

#include <cmath>

#include "kernels/types.h"

namespace orrery::kernels::math {

ORRERY_HOST_DEVICE float select(bool c, float a, float b) { return c ? a : b; }
ORRERY_HOST_DEVICE double select(bool c, double a, double b) { return c ? a : b; }

template <class T>
ORRERY_HOST_DEVICE T sigmoid(T x) {
    using std::exp;
    return T(1.0) / (T(1.0) + exp(-x));
}

template <class T>
ORRERY_HOST_DEVICE T silu(T x) {
    return x * sigmoid(x);
}

/// Derivative of silu: s + x s (1 - s).
template <class T>
ORRERY_HOST_DEVICE T silu_slope(T x) {
    const T s = sigmoid(x);
    return s + x * s * (T(1.0) - s);
}

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as x sigmoid(2u): one exponential.
template <class T>
ORRERY_HOST_DEVICE T gelu_tanh(T x) {
    const T u2 = x * (T(1.5957691216057308) + T(0.071354816272600247) * x * x);
    return x * sigmoid(u2);
}

template <class T>
ORRERY_HOST_DEVICE T gelu_tanh_slope(T x) {
    const T xx = x * x;
    const T u2 = x * (T(1.5957691216057308) + T(0.071354816272600247) * xx);
    const T slope2 = T(1.5957691216057308) + T(0.21406444881780074) * xx;
    const T s = sigmoid(u2);
    return s + x * s * (T(1.0) - s) * slope2;
}

/// x/2 (1 + erf(x / sqrt 2)).
template <class T>
ORRERY_HOST_DEVICE T gelu_erf(T x) {
    using std::erf;
    return T(0.5) * x * (T(1.0) + erf(x * T(0.70710678118654752)));
}

/// Phi(x) + x phi(x).
template <class T>
ORRERY_HOST_DEVICE T gelu_erf_slope(T x) {
    using std::erf, std::exp;
    const T phi = T(0.39894228040143268) * exp(T(-0.5) * x * x);
    return T(0.5) * (T(1.0) + erf(x * T(0.70710678118654752))) + x * phi;
}

template <class T>
ORRERY_HOST_DEVICE T relu(T x) {
    return select(x > T(0.0), x, T(0.0));
}
template <class T>
ORRERY_HOST_DEVICE T relu_slope(T x) {
    return select(x > T(0.0), T(1.0), T(0.0));
}

/// The constants of one AdamW update, derived once per call.
template <class T>
struct AdamWStep {
    T beta1, beta2, eps, step_size, inverse_root, keep, scale;
};

/// step counts from 1: mhat = m / (1 - beta1^step), vhat accordingly, keep = 1 - lr * decay.
template <class T>
ORRERY_HOST_DEVICE AdamWStep<T> adamw_step(double beta1, double beta2, double eps, double decay, double lr,
                                           double scale, double step) {
    using std::pow, std::sqrt;
    const double m_correction = 1 - pow(beta1, step);
    const double v_correction = 1 - pow(beta2, step);
    return {T(beta1), T(beta2), T(eps), T(lr / m_correction), T(1 / sqrt(v_correction)), T(1 - lr * decay), T(scale)};
}

/// a b + c by one fma on a GPU. For a sum of two products the compiler may choose at each place which of the two stays
/// exact; this fixes the choice.
template <class T>
ORRERY_HOST_DEVICE T fused(T a, T b, T c) {
#if defined(__CUDA_ARCH__)
    return fma(a, b, c);
#else
    return a * b + c;
#endif
}

template <class T>
ORRERY_HOST_DEVICE void adamw(const AdamWStep<T>& s, T& p, T g, T& m, T& v) {
    using std::sqrt;
    g = g * s.scale;
    m = fused(s.beta1, m, (T(1.0) - s.beta1) * g);
    v = fused(s.beta2, v, (T(1.0) - s.beta2) * g * g);
    p = fused(s.keep, p, -(s.step_size * m / fused(T(sqrt(v)), s.inverse_root, s.eps)));
}

}  // namespace orrery::kernels::math
