// Unary and binary functions, comparisons, casts and the gates of feed-forward layers.
#pragma once

#include <cmath>

#include "kernels/cuda/pointwise.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// Frequent functions, over runs.
struct UnaryRuns {
    static constexpr int inputs = 1, outputs = 1;
    Unary op;
    ORRERY_DEVICE void apply(const float (&x)[1][run], float (&y)[1][run]) const {
        switch (op) {
            case Unary::neg: return each(x[0], y[0], [](float v) { return -v; });
            case Unary::exp: return each(x[0], y[0], [](float v) { return expf(v); });
            case Unary::tanh: return each(x[0], y[0], [](float v) { return tanhf(v); });
            case Unary::sigmoid: return each(x[0], y[0], [](float v) { return math::sigmoid(v); });
            case Unary::silu: return each(x[0], y[0], [](float v) { return math::silu(v); });
            case Unary::relu: return each(x[0], y[0], [](float v) { return math::relu(v); });
            case Unary::square: return each(x[0], y[0], [](float v) { return v * v; });
            case Unary::abs: return each(x[0], y[0], [](float v) { return fabsf(v); });
            default: return each(x[0], y[0], [](float v) { return math::gelu_tanh(v); });
        }
    }
    static bool has(Unary op) {
        return op != Unary::log && op != Unary::sqrt && op != Unary::rsqrt && op != Unary::cos && op != Unary::sin &&
               op != Unary::gelu_erf;
    }
};

/// Other functions, element by element.
struct UnarySingle {
    using Value = float;
    static constexpr int inputs = 1;
    Unary op;
    ORRERY_DEVICE float one(const float (&x)[1]) const {
        switch (op) {
            case Unary::log: return logf(x[0]);
            case Unary::sqrt: return sqrtf(x[0]);
            case Unary::rsqrt: return 1.0f / sqrtf(x[0]);
            case Unary::cos: return cosf(x[0]);
            case Unary::sin: return sinf(x[0]);
            default: return math::gelu_erf(x[0]);
        }
    }
};

void unary(kernels::Context& context, Unary op, In x, Out y, i64 n) {
    Call& call = call_of(context);
    if (UnaryRuns::has(op)) return map_runs<UnaryRuns, 1, 1>(call, {op}, {x}, {0}, {y}, n);
    map_single<UnarySingle, 1>(call, {op}, {x}, {Shape(&n, 1)}, y);
}

struct UnaryGradRuns {
    static constexpr int inputs = 2, outputs = 1;
    UnaryGrad op;
    ORRERY_DEVICE void apply(const float (&x)[2][run], float (&y)[1][run]) const {
        switch (op) {
            case UnaryGrad::gelu_tanh:
                return each(x[0], x[1], y[0], [](float v, float d) { return d * math::gelu_tanh_slope(v); });
            case UnaryGrad::gelu_erf:
                return each(x[0], x[1], y[0], [](float v, float d) { return d * math::gelu_erf_slope(v); });
            case UnaryGrad::silu:
                return each(x[0], x[1], y[0], [](float v, float d) { return d * math::silu_slope(v); });
            default: return each(x[0], x[1], y[0], [](float v, float d) { return d * math::relu_slope(v); });
        }
    }
};

void unary_grad(kernels::Context& context, UnaryGrad op, In x, In dy, Out dx, i64 n) {
    map_runs<UnaryGradRuns, 2, 1>(call_of(context), {op}, {x, dy}, {0, 0}, {dx}, n);
}

struct BinaryRuns {
    static constexpr int inputs = 2, outputs = 1;
    Binary op;
    ORRERY_DEVICE void apply(const float (&x)[2][run], float (&y)[1][run]) const {
        switch (op) {
            case Binary::add: return each(x[0], x[1], y[0], [](float a, float b) { return a + b; });
            case Binary::sub: return each(x[0], x[1], y[0], [](float a, float b) { return a - b; });
            case Binary::mul: return each(x[0], x[1], y[0], [](float a, float b) { return a * b; });
            case Binary::div: return each(x[0], x[1], y[0], [](float a, float b) { return a / b; });
            case Binary::maximum:
                return each(x[0], x[1], y[0], [](float a, float b) { return a != a || a > b ? a : b; });
            default: return each(x[0], x[1], y[0], [](float a, float b) { return a != a || a < b ? a : b; });
        }
    }
};

struct BinarySingle {
    using Value = float;
    static constexpr int inputs = 2;
    Binary op;
    ORRERY_DEVICE float one(const float (&x)[2]) const {
        const float a = x[0], b = x[1];
        switch (op) {
            case Binary::add: return a + b;
            case Binary::sub: return a - b;
            case Binary::mul: return a * b;
            case Binary::div: return a / b;
            case Binary::maximum: return a != a || a > b ? a : b;
            case Binary::minimum: return a != a || a < b ? a : b;
            default: return powf(a, b);
        }
    }
};

void binary(kernels::Context& context, Binary op, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    Call& call = call_of(context);
    const Shape shapes[2] = {a_shape, b_shape};
    const Broadcast shape(shapes);
    const i64 period[2] = {shape.period(0), shape.period(1)};
    const bool alike = a.type == y.type && b.type == y.type && op != Binary::pow;
    if (alike && period[0] >= 0 && period[1] >= 0)
        return map_runs<BinaryRuns, 2, 1>(call, {op}, {a, b}, period, {y}, shape.n);
    map_single<BinarySingle, 2>(call, {op}, {a, b}, shapes, y);
}

struct CompareSingle {
    using Value = double;  // exact for i32
    static constexpr int inputs = 2;
    Compare op;
    ORRERY_DEVICE float one(const double (&x)[2]) const {
        bool yes = false;
        switch (op) {
            case Compare::less: yes = x[0] < x[1]; break;
            case Compare::less_equal: yes = x[0] <= x[1]; break;
            case Compare::greater: yes = x[0] > x[1]; break;
            case Compare::greater_equal: yes = x[0] >= x[1]; break;
            case Compare::equal: yes = x[0] == x[1]; break;
        }
        return yes ? 1.0f : 0.0f;
    }
};

void compare(kernels::Context& context, Compare op, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    map_single<CompareSingle, 2>(call_of(context), {op}, {a, b}, {a_shape, b_shape}, y);
}

struct SelectSingle {
    using Value = float;
    static constexpr int inputs = 3;
    int unused = 0;
    ORRERY_DEVICE float one(const float (&x)[3]) const { return x[0] != 0.0f ? x[1] : x[2]; }
};

void select(kernels::Context& context, In c, Shape c_shape, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    map_single<SelectSingle, 3>(call_of(context), {}, {c, a, b}, {c_shape, a_shape, b_shape}, y);
}

/// y = by * x between floats, runs of eight.
struct ConvertRuns {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    AnyIn x;
    AnyOut y;
    i64 n;
    float by;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = (b.index() * threads + b.thread()) * run; i < n; i += b.blocks() * threads * run) {
            float v[run];
            x.load(i, n - i, v);
#pragma unroll
            for (int l = 0; l < run; ++l) v[l] *= by;
            y.store(i, n - i, v);
        }
    }
};

void scale(kernels::Context& context, In x, Out y, i64 n, double by) {
    Call& call = call_of(context);
    const ConvertRuns body{AnyIn(x, aligned(x.data)), AnyOut(y, aligned(y.data)), n, static_cast<float>(by)};
    launch(call, blocks_for(call, n, ConvertRuns::threads * run), body);
}

struct ConvertSingle {
    using Value = double;
    static constexpr int inputs = 1;
    int unused = 0;
    ORRERY_DEVICE double one(const double (&x)[1]) const { return x[0]; }
};

bool is_float(Type t) { return t == Type::f32 || t == Type::bf16 || t == Type::f16; }

void cast(kernels::Context& context, In x, Out y, i64 n) {
    if (is_float(x.type) && is_float(y.type)) return scale(context, x, y, n, 1);
    map_single<ConvertSingle, 1>(call_of(context), {}, {x}, {Shape(&n, 1)}, y);
}

struct SwigluRuns {
    static constexpr int inputs = 2, outputs = 1;
    int unused = 0;
    ORRERY_DEVICE void apply(const float (&x)[2][run], float (&y)[1][run]) const {
        each(x[0], x[1], y[0], [](float g, float u) { return math::silu(g) * u; });
    }
};

struct SwigluGradRuns {
    static constexpr int inputs = 3, outputs = 2;
    int unused = 0;
    ORRERY_DEVICE void apply(const float (&x)[3][run], float (&y)[2][run]) const {
#pragma unroll
        for (int l = 0; l < run; ++l) {
            const float s = math::sigmoid(x[0][l]), g = x[0][l];
            y[0][l] = x[2][l] * x[1][l] * (s + g * s * (1.0f - s));
            y[1][l] = x[2][l] * g * s;
        }
    }
};

void swiglu(kernels::Context& context, In gate, In up, Out y, i64 n) {
    map_runs<SwigluRuns, 2, 1>(call_of(context), {}, {gate, up}, {0, 0}, {y}, n);
}

void swiglu_grad(kernels::Context& context, In gate, In up, In dy, Out dgate, Out dup, i64 n) {
    map_runs<SwigluGradRuns, 3, 2>(call_of(context), {}, {gate, up, dy}, {0, 0, 0}, {dgate, dup}, n);
}

}  // namespace

void add_elementwise(Kernels& k) {
    k.unary = unary;
    k.unary_grad = unary_grad;
    k.scale = scale;
    k.cast = cast;
    k.binary = binary;
    k.compare = compare;
    k.select = select;
    k.swiglu = swiglu;
    k.swiglu_grad = swiglu_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
