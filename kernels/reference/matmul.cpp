#include "kernels/math.h"
#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

Values product(const Matmul& s, In a, In b, In bias) {
    const Values x = read(a, s.batch * s.m * s.k);
    const Values w = read(b, (s.shared_b ? 1 : s.batch) * s.k * s.n);
    const Values c = bias.data != nullptr ? read(bias, s.n) : Values(static_cast<size_t>(s.n), 0.0);
    Values y(static_cast<size_t>(s.batch * s.m * s.n));
    for (i64 i = 0; i < s.batch; ++i) {
        const double* xi = x.data() + i * s.m * s.k;
        const double* wi = w.data() + (s.shared_b ? 0 : i * s.k * s.n);
        for (i64 r = 0; r < s.m; ++r) {
            double* row = y.data() + (i * s.m + r) * s.n;
            for (i64 j = 0; j < s.n; ++j) row[j] = c[j];
            for (i64 l = 0; l < s.k; ++l) {
                const double left = s.trans_a ? xi[l * s.m + r] : xi[r * s.k + l];
                for (i64 j = 0; j < s.n; ++j) row[j] += left * (s.trans_b ? wi[j * s.k + l] : wi[l * s.n + j]);
            }
        }
    }
    return y;
}

/// Rounds as a separate kernel would: fused or not, the bits are the same.
Values rounded(const Values& v, Out through) {
    write(through, v);
    return read({through.data, through.type}, static_cast<i64>(v.size()));
}

void matmul(Context&, const Matmul& s, In a, In b, In bias, Out y) { write(y, product(s, a, b, bias), s.accumulate); }

void matmul_bias_gelu(Context&, const Matmul& s, Unary op, In a, In b, In bias, Out y, Out pre) {
    Values v = rounded(product(s, a, b, bias), pre.data != nullptr ? pre : y);
    for (double& e : v) e = op == Unary::gelu_erf ? math::gelu_erf(e) : math::gelu_tanh(e);
    write(y, v);
}

void matmul_gelu_grad(Context&, const Matmul& s, UnaryGrad op, In a, In b, In pre, Out dx) {
    Values v = rounded(product(s, a, b, {}), dx);
    const Values x = read(pre, static_cast<i64>(v.size()));
    for (size_t i = 0; i < v.size(); ++i)
        v[i] *= op == UnaryGrad::gelu_erf ? math::gelu_erf_slope(x[i]) : math::gelu_tanh_slope(x[i]);
    write(dx, v);
}

}  // namespace

void add_matmul(Kernels& k) {
    k.matmul = matmul;
    k.matmul_bias_gelu = matmul_bias_gelu;
    k.matmul_gelu_grad = matmul_gelu_grad;
}

}  // namespace orrery::kernels::reference
