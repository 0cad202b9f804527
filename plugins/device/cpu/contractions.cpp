#include <algorithm>

#include "resolve.h"

namespace orrery::cpu_device {

namespace {

using kernels::Context;
using Operands = std::span<const Tensor>;

/// a[...,m,k] x b[k,n] or b[...,k,n], trans flags swapping the last two dims.
kernels::Matmul sizes(const Request& r) {
    const Shape &a = r.input(0).shape, &b = r.input(1).shape;
    if (a.size() < 2 || b.size() < 2) r.refuse("matmul needs two dims at least");
    kernels::Matmul s;
    s.trans_a = r.spec.attributes.flag("trans_a");
    s.trans_b = r.spec.attributes.flag("trans_b");
    s.accumulate = r.accumulate();
    s.shared_b = b.size() == 2;
    s.m = a[a.size() - (s.trans_a ? 1 : 2)];
    s.k = a[a.size() - (s.trans_a ? 2 : 1)];
    s.n = b[b.size() - (s.trans_b ? 2 : 1)];
    if (s.k != b[b.size() - (s.trans_b ? 1 : 2)]) r.refuse("the contracted dims differ");
    for (size_t d = 0; d + 2 < a.size(); ++d) {
        s.batch *= a[d];
        if (!s.shared_b && (b.size() != a.size() || b[d] != a[d])) r.refuse("the leading dims differ");
    }
    if (s.shared_b && !s.trans_a) {  // one tall product
        s.m *= s.batch;
        s.batch = 1;
    }
    if (s.batch * s.m * s.n != r.output(0).count()) r.refuse("the output has another size");
    return s;
}

Launch matmul(const Request& r) {
    const kernels::Matmul s = sizes(r);
    if (r.spec.inputs.size() == 2) {
        return [f = r.kernels.matmul, s](Context& c, Operands t) { f(c, s, in(t[0]), in(t[1]), {}, out(t[2])); };
    }
    if (!s.shared_b || r.input(2).count() != s.n) r.refuse("a bias needs a shared weight and n elements");
    return [f = r.kernels.matmul, s](Context& c, Operands t) { f(c, s, in(t[0]), in(t[1]), in(t[2]), out(t[3])); };
}

Launch matmul_dw(const Request& r) {
    if (r.input(0).shape.empty() || rows_of(r.input(0)) != rows_of(r.input(1))) r.refuse("the leading dims differ");
    kernels::Matmul s{.m = cols_of(r.input(0)), .n = cols_of(r.input(1)), .k = rows_of(r.input(0)), .trans_a = true};
    s.accumulate = r.accumulate();
    if (s.m * s.n != r.output(0).count()) r.refuse("the output has another size");
    return [f = r.kernels.matmul, s](Context& c, Operands t) { f(c, s, in(t[0]), in(t[1]), {}, out(t[2])); };
}

/// Two kernels of one launch, which take turns in its scratch.
template <class First, class Second>
void in_turn(First first, Second second) {
    using Counted = Context::Counted;
    try {
        first();
    } catch (const Counted& one) {
        try {
            second();
        } catch (const Counted& other) {
            throw Counted{std::max(one.bytes, other.bytes)};
        }
        throw;
    }
    second();
}

Launch matmul_dw_bias(const Request& r) {
    const int64_t n = cols_of(r.input(1));
    if (r.output(1).count() != n) r.refuse("the bias has another size");
    return [dw = matmul_dw(r), f = r.kernels.reduce, shape = Shape{rows_of(r.input(1)), n},
            accumulate = r.accumulate()](Context& c, Operands t) {
        in_turn([&] { dw(c, t); }, [&] { f(c, kernels::Reduce::sum, in(t[1]), shape, 1, out(t[3]), accumulate); });
    };
}

Launch matmul_bias_gelu(const Request& r) {
    const kernels::Matmul s = sizes(r);
    if (!s.shared_b || r.input(2).count() != s.n) r.refuse("a bias needs a shared weight and n elements");
    return [f = r.kernels.matmul_bias_gelu, s, op = r.erf() ? kernels::Unary::gelu_erf : kernels::Unary::gelu_tanh](
               Context& c, Operands t) {
        f(c, s, op, in(t[0]), in(t[1]), in(t[2]), out(t[3]), t.size() > 4 ? out(t[4]) : kernels::Out{});
    };
}

Launch matmul_gelu_grad(const Request& r) {
    const kernels::Matmul s = sizes(r);
    if (r.input(2).count() != r.output(0).count()) r.refuse("pre has another size than the product");
    return [f = r.kernels.matmul_gelu_grad, s,
            op = r.erf() ? kernels::UnaryGrad::gelu_erf : kernels::UnaryGrad::gelu_tanh](Context& c, Operands t) {
        f(c, s, op, in(t[0]), in(t[1]), in(t[2]), out(t[3]));
    };
}

kernels::Attention attention_sizes(const Request& r) {
    const Shape &q = r.input(0).shape, &k = r.input(1).shape;
    if (q.size() != 4 || k.size() != 4 || r.input(2).shape != k || q[0] != k[0] || q[3] != k[3] || k[2] < 1 ||
        q[2] % k[2] != 0) {
        r.refuse("expected q [B,T,H,D], k and v [B,T,G,D] with G dividing H");
    }
    kernels::Attention s;
    s.batch = q[0], s.queries = q[1], s.keys = k[1], s.heads = q[2], s.groups = k[2], s.head_dim = q[3];
    s.scale = r.spec.attributes.number("scale", 1);
    s.causal = r.spec.attributes.flag("causal");
    s.shift = r.spec.attributes.integer("shift", s.keys - s.queries);
    return s;
}

Launch attention(const Request& r) {
    return [f = r.kernels.attention, s = attention_sizes(r)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), out(t[3]), out(t[4]));
    };
}

Launch attention_grad(const Request& r) {
    return [f = r.kernels.attention_grad, s = attention_sizes(r)](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]), out(t[6]), out(t[7]), out(t[8]));
    };
}

constexpr Rule rules[] = {
    {"matmul", "F F F? -> F", matmul, true, true},
    {"matmul_dw", "F F -> F", matmul_dw, true, true},
    {"matmul_dw_bias", "F F -> F s", matmul_dw_bias, true, true},
    {"matmul_bias_gelu", "F F F -> F F?", matmul_bias_gelu, false, true},
    {"matmul_gelu_grad", "F F F -> F", matmul_gelu_grad, false, true},
    {"attention", "f f f -> f s", attention, false, true},
    {"attention_grad", "f f f f s f -> f f f", attention_grad, false, true},
};

}  // namespace

std::span<const Rule> contraction_rules() { return rules; }

}  // namespace orrery::cpu_device
