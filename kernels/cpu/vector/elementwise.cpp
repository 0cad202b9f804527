// Functions of one element; gelu and silu of large activations are the hot ones, and run at memory speed.
#include "kernels/cpu/tile.h"
#include "kernels/math.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// Functions without a vector form, which are rare or applied to few elements.
template <class F>
ORRERY_INLINE Vec by_lane(Vec x, F f) {
    float lanes[width];
    store(x, lanes);
    for (float& lane : lanes) lane = f(lane);
    return load(lanes);
}

bool is_half_or_float(Type t) { return t == Type::f32 || t == Type::bf16 || t == Type::f16; }

void full(Context& c, Out y, i64 n, double value) {
    if (!is_half_or_float(y.type) && y.type != Type::u8) return reference::table().full(c, y, n, value);
    pointwise(c, n, y, [v = Vec(value)]() { return v; });
}

void unary(Context& c, Unary op, In x, Out y, i64 n) {
    switch (op) {
        case Unary::neg:
            return pointwise(
                c, n, y, [](Vec v) { return -v; }, x);
        case Unary::exp:
            return pointwise(
                c, n, y, [](Vec v) { return exp(v); }, x);
        case Unary::log:
            return pointwise(
                c, n, y, [](Vec v) { return by_lane(v, [](float e) { return __builtin_logf(e); }); }, x);
        case Unary::sqrt:
            return pointwise(
                c, n, y, [](Vec v) { return sqrt(v); }, x);
        case Unary::rsqrt:
            return pointwise(
                c, n, y, [](Vec v) { return Vec(1.0f) / sqrt(v); }, x);
        case Unary::cos:
            return pointwise(
                c, n, y, [](Vec v) { return by_lane(v, [](float e) { return __builtin_cosf(e); }); }, x);
        case Unary::sin:
            return pointwise(
                c, n, y, [](Vec v) { return by_lane(v, [](float e) { return __builtin_sinf(e); }); }, x);
        case Unary::tanh:
            return pointwise(
                c, n, y, [](Vec v) { return tanh(v); }, x);
        case Unary::sigmoid:
            return pointwise(
                c, n, y, [](Vec v) { return math::sigmoid(v); }, x);
        case Unary::silu:
            return pointwise(
                c, n, y, [](Vec v) { return math::silu(v); }, x);
        case Unary::relu:
            return pointwise(
                c, n, y, [](Vec v) { return math::relu(v); }, x);
        case Unary::square:
            return pointwise(
                c, n, y, [](Vec v) { return v * v; }, x);
        case Unary::abs:
            return pointwise(
                c, n, y, [](Vec v) { return abs(v); }, x);
        case Unary::gelu_tanh:
            return pointwise(
                c, n, y, [](Vec v) { return math::gelu_tanh(v); }, x);
        case Unary::gelu_erf:
            return pointwise(
                c, n, y, [](Vec v) { return math::gelu_erf(v); }, x);
    }
}

void unary_grad(Context& c, UnaryGrad op, In x, In dy, Out dx, i64 n) {
    switch (op) {
        case UnaryGrad::gelu_tanh:
            return pointwise(
                c, n, dx, [](Vec v, Vec d) { return d * math::gelu_tanh_slope(v); }, x, dy);
        case UnaryGrad::gelu_erf:
            return pointwise(
                c, n, dx, [](Vec v, Vec d) { return d * math::gelu_erf_slope(v); }, x, dy);
        case UnaryGrad::silu:
            return pointwise(
                c, n, dx, [](Vec v, Vec d) { return d * math::silu_slope(v); }, x, dy);
        case UnaryGrad::relu:
            return pointwise(
                c, n, dx, [](Vec v, Vec d) { return d * math::relu_slope(v); }, x, dy);
    }
}

void scale(Context& c, In x, Out y, i64 n, double by) {
    pointwise(
        c, n, y, [b = Vec(by)](Vec v) { return v * b; }, x);
}

void cast(Context& c, In x, Out y, i64 n) {
    if (!is_half_or_float(x.type) || !is_half_or_float(y.type)) return reference::table().cast(c, x, y, n);
    pointwise(
        c, n, y, [](Vec v) { return v; }, x);
}

void swiglu(Context& c, In gate, In up, Out y, i64 n) {
    pointwise(
        c, n, y, [](Vec g, Vec u) { return math::silu(g) * u; }, gate, up);
}

/// One pass over five operands.
void swiglu_grad(Context& c, In gate, In up, In dy, Out dgate, Out dup, i64 n) {
    parallel(c.threads(), n, grain, 64, [&](i64 begin, i64 end) {
        float buffers[5][tile];
        for (i64 at = begin; at < end; at += tile) {
            const i64 size = end - at < tile ? end - at : tile;
            const float* g = fetch(gate, at, size, buffers[0]);
            const float* u = fetch(up, at, size, buffers[1]);
            const float* d = fetch(dy, at, size, buffers[2]);
            map(
                buffers[3], size, [](Vec x, Vec y, Vec z) { return z * y * math::silu_slope(x); }, g, u, d);
            map(
                buffers[4], size, [](Vec x, Vec z) { return z * math::silu(x); }, g, d);
            // Both results are complete before either is written, so an output may be an input.
            const struct {
                Out y;
                const float* from;
            } results[] = {{dgate, buffers[3]}, {dup, buffers[4]}};
            for (const auto& [y, from] : results) {
                if (y.type == Type::f32)
                    __builtin_memcpy(y.as<float>() + at, from, static_cast<size_t>(size) * 4);
                else
                    flush(y, at, size, from);
            }
        }
    });
}

}  // namespace

void add_elementwise(Kernels& k) {
    k.full = full;
    k.unary = unary;
    k.unary_grad = unary_grad;
    k.scale = scale;
    k.cast = cast;
    k.swiglu = swiglu;
    k.swiglu_grad = swiglu_grad;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
