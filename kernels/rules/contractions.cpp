#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

namespace {

/// a[...,m,k] x b[k,n] or b[...,k,n], trans flags swapping the last two dims.
Matmul sizes(const Request& r) {
    const Sizes &a = r.input(0).shape, &b = r.input(1).shape;
    if (a.size() < 2 || b.size() < 2) r.refuse("matmul needs two dims at least");
    Matmul s;
    s.trans_a = r.spec.flag("trans_a");
    s.trans_b = r.spec.flag("trans_b");
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
    if (s.shared_b && !s.trans_a) {  // all batches are one tall product
        s.m *= s.batch;
        s.batch = 1;
    }
    if (s.batch * s.m * s.n != r.output(0).count()) r.refuse("the output has another size");
    return s;
}

Launch matmul(const Request& r) {
    const Matmul s = sizes(r);
    const bool bias = r.spec.inputs.size() == 3;
    if (bias && (!s.shared_b || r.input(2).count() != s.n)) r.refuse("a bias needs a shared weight and n elements");
    return r.target.product(r.target.kernels, s, Epilogue::none, bias, false);
}

Matmul dw_sizes(const Request& r) {
    if (r.input(0).shape.empty() || rows_of(r.input(0)) != rows_of(r.input(1))) r.refuse("the leading dims differ");
    Matmul s{.m = cols_of(r.input(0)), .n = cols_of(r.input(1)), .k = rows_of(r.input(0)), .trans_a = true};
    s.accumulate = r.accumulate();
    if (s.m * s.n != r.output(0).count()) r.refuse("the output has another size");
    return s;
}

Launch matmul_dw(const Request& r) {
    return r.target.product(r.target.kernels, dw_sizes(r), Epilogue::none, false, false);
}

Launch matmul_dw_bias(const Request& r) {
    const Matmul s = dw_sizes(r);
    if (r.output(1).count() != s.n) r.refuse("the bias has another size");
    return r.target.bias_grad(r.target.kernels, s);
}

Launch matmul_bias_gelu(const Request& r) {
    const Matmul s = sizes(r);
    if (!s.shared_b || r.input(2).count() != s.n) r.refuse("a bias needs a shared weight and n elements");
    const bool keeps_pre = r.spec.outputs.size() > 1;
    return r.target.product(r.target.kernels, s, r.erf() ? Epilogue::gelu_erf : Epilogue::gelu_tanh, true, keeps_pre);
}

Launch matmul_gelu_grad(const Request& r) {
    const Matmul s = sizes(r);
    if (r.input(2).count() != r.output(0).count()) r.refuse("pre has another size than the product");
    const UnaryGrad op = r.erf() ? UnaryGrad::gelu_erf : UnaryGrad::gelu_tanh;
    if (r.target.gelu_grad != nullptr) return r.target.gelu_grad(s, op);
    return [f = r.target.kernels.matmul_gelu_grad, s, op](Context& c, Operands t) {
        f(c, s, op, in(t[0]), in(t[1]), in(t[2]), out(t[3]));
    };
}

Attention attention_sizes(const Request& r) {
    const Sizes &q = r.input(0).shape, &k = r.input(1).shape;
    if (q.size() != 4 || k.size() != 4 || r.input(2).shape != k || q[0] != k[0] || q[3] != k[3] || k[2] < 1 ||
        q[2] % k[2] != 0) {
        r.refuse("expected q [B,T,H,D], k and v [B,T,G,D] with G dividing H");
    }
    Attention s;
    s.batch = q[0], s.queries = q[1], s.keys = k[1], s.heads = q[2], s.groups = k[2], s.head_dim = q[3];
    if (const i64 most = r.target.most_head_dim; most > 0 && s.head_dim > most)
        r.refuse("heads of more than " + std::to_string(most) + " elements");
    s.scale = r.spec.number("scale", 1);
    s.causal = r.spec.flag("causal");
    s.shift = r.spec.integer("shift", s.keys - s.queries);
    s.window = r.spec.integer("window");
    if (s.window < 0 || (s.window > 0 && !s.causal)) r.refuse("window must be at least 1 and needs causal attention");
    // the last query sees its first key, so the causal mask is enough
    if (s.window >= s.queries + s.shift) s.window = 0;
    return s;
}

Launch attention(const Request& r) {
    const Attention s = attention_sizes(r);
    if (r.target.attention != nullptr) return r.target.attention(s, r.input(0).type, false);
    return [f = r.target.kernels.attention, s](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), out(t[3]), out(t[4]));
    };
}

Launch attention_grad(const Request& r) {
    const Attention s = attention_sizes(r);
    if (r.target.attention != nullptr) return r.target.attention(s, r.input(0).type, true);
    return [f = r.target.kernels.attention_grad, s](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]), out(t[6]), out(t[7]), out(t[8]));
    };
}

constexpr KernelRule lines[] = {
    {"matmul", matmul, true},
    {"matmul_dw", matmul_dw, true},
    {"matmul_dw_bias", matmul_dw_bias, true},
    {"matmul_bias_gelu", matmul_bias_gelu, true},
    {"matmul_gelu_grad", matmul_gelu_grad, true},
    {"attention", attention, true},
    {"attention_grad", attention_grad, true},
};

}  // namespace

std::span<const KernelRule> contraction_rules() { return lines; }

}  // namespace orrery::kernels::rules
