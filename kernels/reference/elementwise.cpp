#include <algorithm>

#include "kernels/math.h"
#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

void full(Context&, Out y, i64 n, double value) { write(y, Values(static_cast<size_t>(n), value)); }

double apply(Unary op, double x) {
    switch (op) {
        case Unary::neg: return -x;
        case Unary::exp: return std::exp(x);
        case Unary::log: return std::log(x);
        case Unary::sqrt: return std::sqrt(x);
        case Unary::rsqrt: return 1 / std::sqrt(x);
        case Unary::cos: return std::cos(x);
        case Unary::sin: return std::sin(x);
        case Unary::tanh: return std::tanh(x);
        case Unary::sigmoid: return math::sigmoid(x);
        case Unary::silu: return math::silu(x);
        case Unary::relu: return math::relu(x);
        case Unary::square: return x * x;
        case Unary::abs: return std::fabs(x);
        case Unary::gelu_tanh: return math::gelu_tanh(x);
        case Unary::gelu_erf: return math::gelu_erf(x);
    }
    return 0;
}

double slope(UnaryGrad op, double x) {
    switch (op) {
        case UnaryGrad::gelu_tanh: return math::gelu_tanh_slope(x);
        case UnaryGrad::gelu_erf: return math::gelu_erf_slope(x);
        case UnaryGrad::silu: return math::silu_slope(x);
        case UnaryGrad::relu: return math::relu_slope(x);
    }
    return 0;
}

double apply(Binary op, double a, double b) {
    switch (op) {
        case Binary::add: return a + b;
        case Binary::sub: return a - b;
        case Binary::mul: return a * b;
        case Binary::div: return a / b;
        case Binary::maximum: return std::isnan(a) || a > b ? a : b;
        case Binary::minimum: return std::isnan(a) || a < b ? a : b;
        case Binary::pow: return std::pow(a, b);
    }
    return 0;
}

bool apply(Compare op, double a, double b) {
    switch (op) {
        case Compare::less: return a < b;
        case Compare::less_equal: return a <= b;
        case Compare::greater: return a > b;
        case Compare::greater_equal: return a >= b;
        case Compare::equal: return a == b;
    }
    return false;
}

void unary(Context&, Unary op, In x, Out y, i64 n) {
    Values v = read(x, n);
    for (double& e : v) e = apply(op, e);
    write(y, v);
}

void unary_grad(Context&, UnaryGrad op, In x, In dy, Out dx, i64 n) {
    const Values v = read(x, n);
    Values d = read(dy, n);
    for (i64 i = 0; i < n; ++i) d[i] *= slope(op, v[i]);
    write(dx, d);
}

void scale(Context&, In x, Out y, i64 n, double by) {
    Values v = read(x, n);
    for (double& e : v) e *= by;
    write(y, v);
}

void cast(Context&, In x, Out y, i64 n) { write(y, read(x, n)); }

/// An operand broadcast to the shape of the result by numpy's rules.
struct Spread {
    Values values;
    i64 stride[max_dims] = {};

    Spread(In x, Shape shape, int dims) : values(read(x, count(shape))) {
        i64 step = 1;
        for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
            stride[dims - static_cast<int>(shape.size()) + d] = shape[d] == 1 ? 0 : step;
            step *= shape[d];
        }
    }
};

/// Calls f(values of the operands) for each element of the broadcast of their shapes, in order.
template <size_t N, class F>
Values broadcast(const In (&x)[N], const Shape (&shapes)[N], F f) {
    int dims = 0;
    for (Shape s : shapes) dims = std::max(dims, static_cast<int>(s.size()));
    i64 size[max_dims];
    std::fill(size, size + max_dims, 1);
    for (Shape s : shapes) {
        const int first = dims - static_cast<int>(s.size());
        for (size_t d = 0; d < s.size(); ++d) {
            if (s[d] != 1) size[first + d] = s[d];
        }
    }
    std::vector<Spread> in;
    for (size_t i = 0; i < N; ++i) in.emplace_back(x[i], shapes[i], dims);
    Values y(static_cast<size_t>(count({size, static_cast<size_t>(dims)})));
    for (size_t i = 0; i < y.size(); ++i) {
        double value[N];
        for (size_t j = 0; j < N; ++j) {
            i64 at = 0;
            for (i64 d = dims - 1, rest = static_cast<i64>(i); d >= 0; rest /= size[d], --d) {
                at += rest % size[d] * in[j].stride[d];
            }
            value[j] = in[j].values[at];
        }
        y[i] = f(value);
    }
    return y;
}

void binary(Context&, Binary op, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    write(y, broadcast({a, b}, {a_shape, b_shape}, [&](const double* v) { return apply(op, v[0], v[1]); }));
}

void compare(Context&, Compare op, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    write(y, broadcast({a, b}, {a_shape, b_shape}, [&](const double* v) { return apply(op, v[0], v[1]) ? 1.0 : 0.0; }));
}

void select(Context&, In c, Shape c_shape, In a, Shape a_shape, In b, Shape b_shape, Out y) {
    write(y,
          broadcast({c, a, b}, {c_shape, a_shape, b_shape}, [](const double* v) { return v[0] != 0 ? v[1] : v[2]; }));
}

void swiglu(Context&, In gate, In up, Out y, i64 n) {
    Values g = read(gate, n);
    const Values u = read(up, n);
    for (i64 i = 0; i < n; ++i) g[i] = math::silu(g[i]) * u[i];
    write(y, g);
}

void swiglu_grad(Context&, In gate, In up, In dy, Out dgate, Out dup, i64 n) {
    Values g = read(gate, n), u = read(up, n);
    const Values d = read(dy, n);
    for (i64 i = 0; i < n; ++i) {
        const double x = g[i];
        g[i] = d[i] * u[i] * math::silu_slope(x);
        u[i] = d[i] * math::silu(x);
    }
    write(dgate, g);
    write(dup, u);
}

}  // namespace

void add_elementwise(Kernels& k) {
    k.full = full;
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

}  // namespace orrery::kernels::reference
