#include <algorithm>

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

/// x [G..., E, S, K] with counts [G..., E], or x [R, K] with counts [E]; `other` has the same dims but the last one.
GroupedMatmul grouped_sizes(const Request& r, const Operand& other) {
    const Sizes &x = r.input(0).shape, &counts = r.input(2).shape;
    if (x.size() < 2 || counts.empty()) r.refuse("x needs two dims at least and counts one");
    GroupedMatmul s;
    s.sorted = x.size() == 2;
    s.experts = counts.back();
    s.groups = rows_of(r.input(2));
    s.slots = x[x.size() - 2];
    s.k = x.back();
    s.n = cols_of(other);
    const bool same = s.sorted ? counts.size() == 1
                               : counts.size() + 2 == x.size() && std::equal(counts.begin(), counts.end(), x.begin());
    if (!same) r.refuse("counts has other dims than x");
    if (other.shape.size() != x.size() || !std::equal(x.begin(), x.end() - 1, other.shape.begin()))
        r.refuse("the dims before the last one differ");
    return s;
}

Launch grouped_matmul(const Request& r) {
    GroupedMatmul s = grouped_sizes(r, r.output(0));
    s.trans_b = r.spec.flag("trans_b");
    const Sizes w = s.trans_b ? Sizes{s.experts, s.n, s.k} : Sizes{s.experts, s.k, s.n};
    if (r.input(1).shape != w) r.refuse("expected w [E,K,N], or [E,N,K] with trans_b");
    return [f = r.target.kernels.grouped_matmul, s](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), static_cast<const std::int32_t*>(t[2].data), out(t[3]));
    };
}

Launch grouped_matmul_dw(const Request& r) {
    GroupedMatmul s = grouped_sizes(r, r.input(1));
    s.accumulate = r.accumulate();
    if (r.output(0).shape != Sizes{s.experts, s.k, s.n}) r.refuse("expected dw [E,K,N]");
    return [f = r.target.kernels.grouped_matmul_dw, s](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), static_cast<const std::int32_t*>(t[2].data), out(t[3]));
    };
}

/// Reads the attributes `blocks` and `rolled`, for a rank that has whole blocks or a part of one. `offset` and
/// `global_shape` give the place of its queries.
void read_blocks(const Request& r, const Sizes& all, Attention& s) {
    const i64 blocks = r.spec.integer("blocks"), whole = all.empty() ? s.queries : all[1];
    if (blocks < 2 || whole % blocks != 0) r.refuse("blocks must be at least 2 and divide the queries");
    const i64 block = whole / blocks, first = r.offset(1), own = std::max<i64>(s.queries / block, 1);
    if (s.keys % own != 0 || (own > 1 && s.queries % block != 0) || first % block + s.queries / own > block)
        r.refuse("queries and keys of a rank must be whole blocks, or part of one block");
    s.blocks = own, s.batch *= own, s.queries /= own, s.keys /= own;
    if (s.indexed || !s.causal) return;
    if (s.keys != block) r.refuse("causal blocks need as many queries as keys");
    // Block p holds the keys of block p - turn. For the first `turn` blocks these keys come after the queries.
    const i64 rolled = r.spec.integer("rolled"), turn = rolled / block;
    s.shift = rolled + first % block;
    s.blind = std::clamp<i64>(turn - first / block, 0, own);
    if (s.blind == own) s.shift = -s.queries, s.blind = 0;
}

/// `index`: number of the operand that begins the index, if there is one.
Attention attention_sizes(const Request& r, size_t index, bool indexed) {
    const Sizes &q = r.input(0).shape, &k = r.input(1).shape, &v = r.input(2).shape;
    if (q.size() != 4 || k.size() != 4 || v.size() != 4 || q[0] != k[0] || q[3] != k[3] || k[2] < 1 ||
        q[2] % k[2] != 0 || !std::equal(v.begin(), v.begin() + 3, k.begin())) {
        r.refuse("expected q [B,T,H,D], k [B,S,G,D] and v [B,S,G,V] with G dividing H");
    }
    Attention s;
    s.batch = q[0], s.queries = q[1], s.keys = k[1], s.heads = q[2], s.groups = k[2], s.head_dim = q[3];
    if (v[3] != q[3]) s.value_dim = v[3];
    if (const i64 most = r.target.most_head_dim; most > 0 && std::max(s.head_dim, s.values()) > most)
        r.refuse("heads of more than " + std::to_string(most) + " elements");
    s.scale = r.spec.number("scale", 1);
    s.causal = r.spec.flag("causal");
    s.window = r.spec.integer("window");
    if (s.window < 0 || (s.window > 0 && !s.causal)) r.refuse("window must be at least 1 and needs causal attention");
    s.indexed = indexed;
    const Sizes all = r.spec.integers("global_shape");
    if (indexed) {
        const Sizes of_queries{s.batch, s.queries}, of_keys{s.batch, s.keys};
        for (size_t i = 0; i < 4; ++i) {
            if (r.input(index + i).shape != (i < 2 ? of_queries : of_keys))
                r.refuse("expected documents and positions of queries [B,T] and of keys [B,S]");
        }
    } else if (!r.has("blocks")) {
        // Of a part of the queries, `offset` and `global_shape` give the place among all; the last query sees all keys.
        s.shift = s.keys - (all.empty() ? s.queries : all[1]) + r.offset(1);
    }
    if (r.has("blocks")) read_blocks(r, all, s);
    // the last query sees its first key, so the causal mask is enough
    if (!s.indexed && s.window >= s.queries + s.shift) s.window = 0;
    // of an earlier block a query sees all keys
    if (r.has("blocks") && s.causal && !s.indexed && s.window == 0 && s.blind == 0 && s.shift >= s.keys - 1)
        s.causal = false, s.shift = 0;
    return s;
}

/// Refuses what a device's own attention cannot do.
void check_target(const Request& r, const Attention& s, bool of_lse) {
    if (r.target.attention == nullptr || r.target.attention_by_index) return;
    const bool other_size = s.value_dim > 0;
    if (s.indexed || other_size || of_lse || s.blocks > 1) {
        r.refuse(std::string("this device has no attention ") + (s.indexed      ? "by documents and positions"
                                                                 : s.blocks > 1 ? "in blocks"
                                                                 : other_size   ? "with values of another head size"
                                                                                : "with a gradient of lse"));
    }
}

Launch attention(const Request& r) {
    const Attention s = attention_sizes(r, 3, r.spec.inputs.size() > 3);
    check_target(r, s, false);
    if (r.target.attention != nullptr) return r.target.attention(s, r.input(0).type, false);
    return [f = r.target.kernels.attention, s, y = r.out()](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), index_of(s, t, 3), out(t[y]), out(t[y + 1]));
    };
}

Launch attention_grad(const Request& r) {
    const size_t inputs = r.out();
    const Attention s = attention_sizes(r, 6, inputs >= 10);
    check_target(r, s, inputs % 2 != 0);
    if (r.target.attention != nullptr) return r.target.attention(s, r.input(0).type, true);
    return [f = r.target.kernels.attention_grad, s, y = inputs](Context& c, Operands t) {
        f(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]), index_of(s, t, 6), d_lse_of(s, t),
          out(t[y]), out(t[y + 1]), out(t[y + 2]));
    };
}

constexpr KernelRule lines[] = {
    {"matmul", matmul, true},
    {"matmul_dw", matmul_dw, true},
    {"matmul_dw_bias", matmul_dw_bias, true},
    {"matmul_bias_gelu", matmul_bias_gelu, true},
    {"matmul_gelu_grad", matmul_gelu_grad, true},
    {"grouped_matmul", grouped_matmul, true},
    {"grouped_matmul_dw", grouped_matmul_dw, true},
    {"attention", attention, true},
    {"attention_grad", attention_grad, true},
};

}  // namespace

std::span<const KernelRule> contraction_rules() { return lines; }

AttentionIndex index_of(const Attention& s, Operands t, size_t first) {
    if (!s.indexed) return {};
    const auto ids = [&](size_t i) { return static_cast<const std::int32_t*>(t[first + i].data); };
    return {ids(0), ids(1), ids(2), ids(3)};
}

In d_lse_of(const Attention& s, Operands t) {
    const size_t at = s.indexed ? 10 : 6;
    return t.size() > at + 3 ? in(t[at]) : In{};
}

}  // namespace orrery::kernels::rules
