#include "kernels_cases.h"

#include <algorithm>

namespace orrery::kernels::testing {

namespace {

const Operand scalar{Type::f32, {}};

bool floating(Type t) { return t == Type::f32 || t == Type::bf16 || t == Type::f16; }

}  // namespace

OpCase& Cases::add(const std::string& op, Attributes attributes, std::vector<Operand> in, std::vector<Operand> out,
                   double low, double high) {
    std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    OpCase one{{op, std::move(attributes), std::move(in), std::move(out)}, {}, {}};
    for (const Operand& o : one.spec.inputs) one.in.push_back(fresh(o, low, high));
    // Not numbers: an element that is not written shows. With accumulate: what is added to.
    const bool adds = one.spec.flag("accumulate");
    for (size_t i = 0; i < one.spec.outputs.size(); ++i) {
        const Operand& o = one.spec.outputs[i];
        one.out.push_back(adds ? fresh(o, -1, 1) : Buffer(o.type, o.count()));
        if (!adds && floating(o.type))
            one.out.back().set(std::vector<double>(static_cast<size_t>(o.count()), static_cast<double>(NAN)));
    }
    all.push_back(std::move(one));
    return all.back();
}

Buffer Cases::fresh(const Operand& o, double low, double high) {
    if (floating(o.type)) return source_.uniform(o.type, o.count(), low, high);
    Buffer b(o.type, o.count());
    b.set(source_.integers(o.count(), 0, o.type == Type::u8 ? 1 : 5).values());
    return b;
}

void elementwise(Cases& c, Type f, const Sizes& shape) {
    const Operand x{f, shape};
    for (const char* op : {"neg", "exp", "cos", "sin", "tanh", "sigmoid", "silu", "relu", "square", "abs"})
        c.add(op, {}, {x}, {x});
    for (const char* op : {"log", "sqrt", "rsqrt"}) c.add(op, {}, {x}, {x}, 0.1, 3);
    for (const char* approx : {"tanh", "erf"}) {
        c.add("gelu", {{"approx", std::string(approx)}}, {x}, {x});
        c.add("gelu_grad", {{"approx", std::string(approx)}}, {x, x}, {x});
    }
    for (const char* op : {"silu_grad", "relu_grad", "swiglu"}) c.add(op, {}, {x, x}, {x});
    c.add("swiglu_grad", {}, {x, x, x}, {x, x});
    c.add("scale", {{"by", 0.37}}, {x}, {x});
    for (const Type to : {Type::f32, Type::bf16, Type::f16, Type::i32}) c.add("cast", {}, {x}, {{to, shape}});
    c.add("full", {{"value", 0.75}}, {}, {x});
    c.add("dropout", {{"p", 0.3}, {"stream", i64{7}}}, {x, {Type::u32, {}}}, {x});
}

void broadcasts(Cases& c, Type f, i64 n) {
    for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "pow"}) {
        c.add(op, {}, {{f, {3, n}}, {f, {n}}}, {{f, {3, n}}}, 0.5, 2);
        c.add(op, {}, {{f, {}}, {f, {n}}}, {{f, {n}}}, 0.5, 2);
        c.add(op, {}, {{f, {n, 1}}, {Type::f32, {n, 3}}}, {{f, {n, 3}}}, 0.5, 2);
    }
    for (const char* op : {"less", "less_equal", "greater", "greater_equal", "equal"}) {
        c.add(op, {}, {{f, {3, n}}, {f, {n}}}, {{Type::u8, {3, n}}});
        c.add(op, {}, {{Type::i32, {n}}, {Type::i32, {}}}, {{Type::u8, {n}}});
    }
    c.add("select", {}, {{Type::u8, {3, n}}, {f, {n}}, {f, {3, 1}}}, {{f, {3, n}}});
}

void broadcasts(Cases& c, Type f) {
    const auto pair = [&](const char* op, const Sizes& a, const Sizes& b, const Sizes& y, double low = -2) {
        c.add(op, {}, {{f, a}, {f, b}}, {{f, y}}, low, 2);
    };
    for (const char* op : {"add", "sub", "mul", "maximum", "minimum"}) {
        pair(op, {5, 33}, {5, 33}, {5, 33});
        pair(op, {4, 3, 64}, {64}, {4, 3, 64});
        pair(op, {3, 64}, {2, 3, 64}, {2, 3, 64});
        pair(op, {4, 1, 9}, {3, 9}, {4, 3, 9});
        pair(op, {7, 24}, {}, {7, 24});
        pair(op, {5, 1}, {5, 17}, {5, 17});
    }
    pair("div", {5, 33}, {5, 33}, {5, 33}, 0.5);
    pair("pow", {5, 33}, {33}, {5, 33}, 0.5);
    c.add("add", {}, {{f, {6, 40}}, {Type::f32, {6, 40}}}, {{f, {6, 40}}});
    for (const char* op : {"less", "less_equal", "greater", "greater_equal", "equal"}) {
        c.add(op, {}, {{f, {4, 9}}, {f, {9}}}, {{Type::u8, {4, 9}}});
        c.add(op, {}, {{Type::i32, {4, 9}}, {Type::i32, {}}}, {{Type::u8, {4, 9}}});
    }
    c.add("select", {}, {{Type::u8, {4, 9}}, {f, {4, 9}}, {f, {9}}}, {{f, {4, 9}}});
    const Attributes shard{{"p", 0.3}, {"stream", i64{7}}, {"global_shape", Sizes{12, 40}}, {"offset", Sizes{3, 10}}};
    c.add("dropout", shard, {{f, {5, 21}}, {Type::u32, {}}}, {{f, {5, 21}}});
    c.add("dropout", shard, {{f, {5, 21}}, {Type::u32, {}}, {Type::i32, {5, 21}}}, {{f, {5, 21}}});
    c.add("dropout", {{"p", 0.3}, {"stream", i64{7}}}, {{f, {5, 3, 17}}, {Type::u32, {}}, {Type::i32, {5, 3}}},
          {{f, {5, 3, 17}}});
}

void random(Cases& c, i64 rows, i64 cols) {
    const Operand y{Type::f32, {rows, cols}};
    for (const char* kind : {"normal", "uniform"}) {
        c.add("random", {{"kind", std::string(kind)}, {"scale", 0.02}, {"stream", i64{3}}}, {{Type::u32, {}}}, {y});
        const Sizes global{rows + 7, cols + 2};
        c.add("random", {{"kind", std::string(kind)}, {"global_shape", global}, {"offset", Sizes{5, 2}}},
              {{Type::u32, {}}}, {y});
    }
    c.add("random", {{"kind", std::string("uniform")}}, {{Type::u32, {}}, {Type::i32, {rows, cols}}}, {y});
}

void products(Cases& c, Type f, i64 m, i64 n, i64 k) {
    const Operand bias{f, {n}}, y{f, {m, n}};
    c.add("matmul", {}, {{f, {m, k}}, {f, {k, n}}}, {y});
    c.add("matmul", {{"trans_b", true}}, {{f, {m, k}}, {f, {n, k}}, bias}, {y});
    c.add("matmul", {{"trans_a", true}}, {{f, {k, m}}, {f, {k, n}}}, {y});
    c.add("matmul", {{"accumulate", true}}, {{f, {m, k}}, {f, {k, n}}}, {{Type::f32, {m, n}}});
    c.add("matmul", {}, {{f, {3, m, k}}, {f, {3, k, n}}}, {{f, {3, m, n}}});
    c.add("matmul", {}, {{f, {2, 3, m, k}}, {f, {k, n}}, bias}, {{f, {2, 3, m, n}}});
    c.add("matmul_dw", {}, {{f, {2, m, k}}, {f, {2, m, n}}}, {{Type::f32, {k, n}}});
    c.add("matmul_dw", {{"accumulate", true}}, {{f, {2, m, k}}, {f, {2, m, n}}}, {{Type::f32, {k, n}}});
    for (const bool adds : {false, true}) {
        const Attributes a = adds ? Attributes{{"accumulate", true}} : Attributes{};
        c.add("matmul_dw_bias", a, {{f, {2, m, k}}, {f, {2, m, n}}}, {{Type::f32, {k, n}}, {Type::f32, {n}}});
    }
    for (const char* name : {"tanh", "erf"}) {
        const std::string approx = name;
        const Operand x{f, {m, k}}, w{f, {k, n}};
        // Products of about 1: what gelu makes of a few numbers far below 0 has no relative error to be held to.
        const double most = std::sqrt(3 / std::sqrt(static_cast<double>(k)));
        c.add("matmul_bias_gelu", {{"approx", approx}}, {x, w, bias}, {y, y}, -most, most);
        c.add("matmul_bias_gelu", {{"approx", approx}, {"drop_pre", true}}, {x, w, bias}, {y}, -most, most);
        const Operand turned{f, {n, k}};
        c.add("matmul_gelu_grad", {{"approx", approx}, {"trans_b", true}}, {x, turned, y}, {y}, -most, most);
    }
}

namespace {

/// Rows that do not count are not numbers.
void spoil(Buffer& x, const GroupedMatmul& s, const std::vector<double>& held) {
    const std::vector<std::int32_t> counts(held.begin(), held.end());
    const i64 rows = s.rows(), cols = x.count() / rows;
    std::vector<double> values = x.values(), all(values.size(), static_cast<double>(NAN));
    for (i64 g = 0; g < s.groups; ++g) {
        for (i64 e = 0; e < s.experts; ++e) {
            const ExpertRows at = expert_rows(s, counts.data(), g, e);
            std::copy_n(values.begin() + at.first * cols, at.count * cols, all.begin() + at.first * cols);
        }
    }
    x.set(all);
}

}  // namespace

void grouped_products(Cases& c, Type f, i64 experts, i64 slots, i64 n, i64 k) {
    const Operand w{f, {experts, k, n}}, turned{f, {experts, n, k}}, dw{Type::f32, {experts, k, n}}, own{f, dw.shape};
    const Attributes plain, transposed{{"trans_b", true}}, adds{{"accumulate", true}};
    const auto both = [&](Sizes x, Sizes y, const Sizes& counts, const std::vector<double>& held) {
        const Operand of_x{f, std::move(x)}, of_y{f, std::move(y)}, count{Type::i32, counts};
        const auto add = [&](const char* op, const Attributes& a, const Operand& second, const Operand& result) {
            OpCase& one = c.add(op, a, {of_x, second, count}, {result});
            one.in[2].set(held);
            const GroupedMatmul s{.groups = counts.size() > 1 ? counts[0] : 1,
                                  .experts = experts,
                                  .slots = of_x.shape[of_x.shape.size() - 2],
                                  .sorted = of_x.shape.size() == 2};
            spoil(one.in[0], s, held);
            if (second.shape == of_y.shape) spoil(one.in[1], s, held);
        };
        add("grouped_matmul", plain, w, of_y);
        add("grouped_matmul", transposed, turned, of_y);
        add("grouped_matmul_dw", plain, of_y, dw);
        add("grouped_matmul_dw", adds, of_y, dw);
        add("grouped_matmul_dw", plain, of_y, own);
        add("grouped_matmul_dw", adds, of_y, own);
    };
    // Of the four kinds of counts each group begins with another one.
    const auto held_by = [&](i64 i) {
        return i % 4 == 0 ? slots / 2 + 1 : i % 4 == 1 ? 0 : i % 4 == 2 ? slots + 3 : -1;
    };
    std::vector<double> held;
    for (i64 g = 0; g < 3; ++g)
        for (i64 e = 0; e < experts; ++e) held.push_back(static_cast<double>(held_by(g + e)));
    both({3, experts, slots, k}, {3, experts, slots, n}, {3, experts}, held);
    held.resize(static_cast<size_t>(experts));
    both({experts, slots, k}, {experts, slots, n}, {experts}, held);
    // Rows that are left after the last expert, and too few for the last ones.
    both({2 * experts * slots, k}, {2 * experts * slots, n}, {experts}, held);
    both({slots, k}, {slots, n}, {experts}, held);
}

void mixed_products(Cases& c, Type f, i64 m, i64 n, i64 k) {
    c.add("matmul", {}, {{f, {m, k}}, {Type::f32, {k, n}}}, {{f, {m, n}}});
    c.add("matmul", {}, {{f, {m, k}}, {f, {k, n}}, {Type::f32, {n}}}, {{f, {m, n}}});
}

void attentions(Cases& c, Type f, const Heads& z) {
    const i64 values = z.values > 0 ? z.values : z.dim;
    const Operand q{f, {z.batch, z.queries, z.heads, z.dim}}, k{f, {z.batch, z.keys, z.groups, z.dim}};
    const Operand o{f, {z.batch, z.queries, z.heads, values}}, v{f, {z.batch, z.keys, z.groups, values}};
    const Operand lse{Type::f32, {z.batch, z.heads, z.queries}};
    Attributes attributes{{"scale", 1 / std::sqrt(static_cast<double>(z.dim))}};
    if (z.causal) attributes.insert(attributes.begin(), {"causal", true});
    if (z.window > 0) attributes.emplace_back("window", z.window);
    std::vector<Operand> in{q, k, v}, back{q, k, v, o, lse, o};
    const Operand of_queries{Type::i32, {z.batch, z.queries}}, of_keys{Type::i32, {z.batch, z.keys}};
    if (z.indexed) {
        in.insert(in.end(), {of_queries, of_queries, of_keys, of_keys});
        back.insert(back.end(), {of_queries, of_queries, of_keys, of_keys, lse});
    }
    OpCase forward = c.add("attention", attributes, in, {o, lse});
    for (size_t i = 3; i < in.size(); ++i) {
        const bool documents = i % 2 != 0;
        forward.in[i] = c.source().integers(in[i].count(), documents ? -1 : 0, documents ? 1 : z.keys);
    }
    c.all.back().in = forward.in;
    Buffers made = forward.out;
    run_reference(forward.spec, forward.in, made);
    OpCase& backward = c.add("attention_grad", attributes, back, {q, k, v});
    for (size_t i = 0; i < in.size(); ++i) backward.in[i < 3 ? i : 3 + i] = forward.in[i];
    for (size_t i = 0; i < 2; ++i) backward.in[3 + i] = made[i];
}

void norms(Cases& c, Type f, i64 rows, i64 cols) {
    const Operand x{f, {rows, cols}}, gain{Type::f32, {cols}}, own{f, {cols}}, row{Type::f32, {rows}};
    const Operand sums{Type::f32, {cols}};
    c.add("softmax", {}, {x}, {x});
    const OpCase soft = c.all.back();
    Buffers p = soft.out;
    run_reference(soft.spec, soft.in, p);
    c.add("softmax_grad", {}, {x, x}, {x}).in[0] = p[0];
    // Not about 0: a mean that is nothing by chance has no relative error to be held to.
    const OpCase layer = c.add("layernorm", {{"eps", 1e-5}}, {x, gain, gain}, {x, row, row}, -1, 2);
    c.add("layernorm", {{"eps", 1e-5}}, {x, own, own}, {x, row, row}, -1, 2);
    c.add("layernorm", {{"eps", 1e-5}}, {x, gain, gain, x}, {x, row, row, x}, -1, 2);
    const OpCase rms = c.add("rmsnorm", {{"eps", 1e-5}}, {x, gain}, {x, row});
    c.add("rmsnorm", {{"eps", 1e-5}}, {x, gain, x}, {x, row, x});
    Buffers of_layer = layer.out, of_rms = rms.out;
    run_reference(layer.spec, layer.in, of_layer);
    run_reference(rms.spec, rms.in, of_rms);
    for (const auto& [accumulate, dsum] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        const Attributes a = accumulate ? Attributes{{"accumulate", true}} : Attributes{};
        std::vector<Operand> layer_in{x, gain, row, row, x}, rms_in{x, gain, row, x};
        if (dsum) layer_in.push_back(x), rms_in.push_back(x);
        OpCase& back = c.add("layernorm_grad", a, layer_in, {x, sums, sums});
        back.in[0] = layer.in[0];
        back.in[2] = of_layer[1];
        back.in[3] = of_layer[2];
        OpCase& rms_back = c.add("rmsnorm_grad", a, rms_in, {x, sums});
        rms_back.in[0] = rms.in[0];
        rms_back.in[2] = of_rms[1];
    }
}

void reductions(Cases& c, Type f, const std::vector<Reduced>& sizes, i64 count) {
    for (const Reduced& z : sizes) {
        c.add("sum", {{"dims", z.dims}}, {{f, z.shape}}, {{Type::f32, z.result}}, -0.5, 1);
        c.add("sum", {{"accumulate", true}, {"dims", z.dims}}, {{f, z.shape}}, {{Type::f32, z.result}}, -0.5, 1);
        c.add("max", {{"dims", z.dims}}, {{f, z.shape}}, {{f, z.result}});
    }
    c.add("sumsq", {}, {{f, {count}}}, {scalar});
    c.add("all_finite", {}, {{f, {count}}}, {{Type::u8, {}}});
    OpCase& bad = c.add("all_finite", {}, {{f, {count}}}, {{Type::u8, {}}});
    std::vector<double> v = bad.in[0].values();
    v[static_cast<size_t>(count * 4 / 7)] = static_cast<double>(NAN);
    bad.in[0].set(v);
}

void embeddings(Cases& c, Type f, i64 n, i64 rows, i64 cols) {
    const Operand t{Type::i32, {n}}, y{f, {n, cols}};
    const Buffer spread = c.source().integers(n, 0, rows - 1);
    for (const i64 start : {i64{0}, i64{2}}) {
        Attributes a{{"offset", Sizes{start, 0}}};
        c.add("embedding", a, {t, {f, {rows, cols}}}, {y}).in[0] = spread;
        c.add("embedding_grad", a, {t, y}, {{Type::f32, {rows, cols}}}).in[0] = spread;
        a.insert(a.begin(), {"accumulate", true});
        c.add("embedding_grad", a, {t, y}, {{Type::f32, {rows, cols}}}).in[0] = spread;
    }
}

namespace {

void picks(Cases& c, Type f, i64 outer, i64 n, i64 inner) {
    const i64 count = n / 2 + 3;
    const Operand held{f, {outer, n, inner}}, picked{f, {outer, count, inner}};
    const Attributes dim{{"dim", i64{1}}}, shard{{"dim", i64{1}}, {"offset", Sizes{0, 2, 0}}};
    for (const i64 width : {inner, i64{1}}) {
        const Operand ids{Type::i32, {outer, count, width}};
        // Some below and behind what is held, and several of one.
        const Buffer where = c.source().integers(ids.count(), -2, n + 1);
        const Buffer few = c.source().integers(ids.count(), 0, 2);
        for (const Attributes& a : {dim, shard}) {
            c.add("gather", a, {held, ids}, {picked}).in[1] = where;
            c.add("scatter_add", a, {picked, ids}, {held}).in[1] = where;
        }
        Attributes adds = shard;
        adds.push_back({"accumulate", true});
        c.add("scatter_add", adds, {picked, ids}, {held}).in[1] = few;
        c.add("scatter_add", adds, {picked, ids}, {{Type::f32, held.shape}}).in[1] = few;
    }
}

void selections(Cases& c, Type f, i64 outer, i64 n, i64 inner) {
    const Operand x{f, {outer, n, inner}};
    for (const i64 k : {i64{1}, (n + 2) / 3, n}) {
        const Sizes shape{outer, k, inner};
        OpCase& one = c.add("top_k", {{"dim", i64{1}}, {"k", k}}, {x}, {{f, shape}, {Type::i32, shape}});
        std::vector<double> v = one.in[0].values();
        for (size_t i = 0; i < v.size(); i += 3) v[i] = i % 2 == 0 ? 0.5 : -0.0;
        for (size_t i = 1; i < v.size(); i += 7) v[i] = i % 2 == 0 ? 0.0 : static_cast<double>(NAN);
        for (size_t i = 2; i < v.size(); i += 11) v[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
        if (k != n) one.in[0].set(v);
    }
}

/// Two groups of n tokens with two choices of four experts, and `slots` slots for each of them.
void mixtures(Cases& c, Type f, i64 n, i64 slots, i64 width) {
    const i64 experts = 4;
    const Operand chosen{Type::i32, {2, n, 2}}, load{Type::i32, {2, experts}}, weights{f, {2, n, 2}};
    const Operand x{f, {2, n, width}}, y{f, {2, experts, slots, width}}, dots{Type::f32, chosen.shape};
    const Attributes sizes{{"experts", experts}, {"slots", slots}};
    const Buffer ids = c.source().integers(chosen.count(), -1, experts);
    c.add("assign_slots", sizes, {chosen}, {chosen, load}).in[0] = ids;
    for (const bool ties : {false, true}) {
        OpCase& one = c.add("assign_slots", sizes, {chosen, weights}, {chosen, load});
        one.in[0] = ids;
        std::vector<double> v = one.in[1].values();
        for (size_t i = 0; i < v.size() && ties; ++i) v[i] = static_cast<double>(i % 3);
        for (size_t i = 4; i < v.size() && ties; i += 9) v[i] = static_cast<double>(NAN);
        one.in[1].set(v);
    }
    // Slots of other shards, slots that repeat, and slots that no choice has.
    const Buffer where = c.source().integers(chosen.count(), -1, experts * slots + slots);
    for (const i64 start : {i64{0}, i64{1}}) {
        const Attributes shard{{"offset", Sizes{0, start, 0, 0}}};
        Attributes sized = shard;
        sized.insert(sized.end(), sizes.begin(), sizes.end());
        c.add("dispatch", sized, {x, chosen}, {y}).in[1] = where;
        c.add("dispatch", sized, {x, chosen, weights}, {y}).in[1] = where;
        c.add("dispatch", sized, {x, chosen, {Type::f32, chosen.shape}}, {y}).in[1] = where;
        c.add("combine", shard, {y, chosen}, {x}).in[1] = where;
        c.add("combine", shard, {y, chosen, weights}, {x}).in[1] = where;
        c.add("slot_dots", shard, {y, x, chosen}, {dots}).in[2] = where;
    }
}

}  // namespace

void indices(Cases& c, Type f, i64 outer, i64 n, i64 inner) {
    picks(c, f, outer, n, inner);
    selections(c, f, outer, n, inner);
    mixtures(c, f, n, n / 4 + 1, inner);
    const Operand x{f, {outer, n, inner}};
    for (const bool reverse : {false, true}) {
        for (const bool exclusive : {false, true}) {
            // Not about 0: a sum that is nothing by chance has no relative error to be held to.
            c.add("cumsum", {{"dim", i64{1}}, {"exclusive", exclusive}, {"reverse", reverse}}, {x}, {x}, -0.5, 1);
        }
    }
    for (const Type type : {f, Type::i32}) {
        c.add("iota", {{"dim", i64{-2}}}, {}, {{type, x.shape}});
        c.add("iota", {{"dim", i64{0}}, {"offset", Sizes{5, 0, 0}}}, {}, {{type, x.shape}});
        const Buffer where = c.source().integers(outer * inner, -1, n);
        const Operand ids{Type::i32, {outer, inner}}, hot{type, {outer, inner, n}};
        c.add("one_hot", {{"size", n}}, {ids}, {hot}).in[0] = where;
        c.add("one_hot", {{"offset", Sizes{0, 0, 2}}, {"size", n + 2}}, {ids}, {hot}).in[0] = where;
    }
}

void codes(Cases& c, Type f, i64 rows, i64 cols) {
    const Operand x{f, {rows, cols}}, q{Type::i8, x.shape};
    for (const i64 block : {i64{7}, i64{256}, i64{2048}}) {
        const Sizes blocks{rows, (cols + block - 1) / block};
        for (const i64 bits : {8, 4, 2, 1}) {
            const Attributes attributes{{"block", block}, {"bits", bits}, {"dtype", std::string("i8")}};
            const OpCase made = c.add("quantize", attributes, {x}, {q, {bits > 1 ? Type::bf16 : Type::f32, blocks}});
            Buffers codes = made.out;
            run_reference(made.spec, made.in, codes);
            OpCase& back = c.add("dequantize", {{"block", block}, {"bits", bits}}, {q, made.spec.outputs[1]}, {x});
            back.in = codes;
            if (bits == 8) continue;
            const Operand packed{Type::u8, {rows, (cols * bits + 7) / 8}};
            OpCase& joined = c.add("pack", {{"bits", bits}}, {q}, {packed});
            joined.in[0] = codes[0];
            c.add("unpack", {{"bits", bits}, {"size", cols}}, {packed}, {q}).in[0] =
                c.source().uniform(Type::u8, packed.count(), 0, 255);
        }
        for (const Type type : {Type::f8e4m3, Type::f8e5m2}) {
            const Operand f8{type, x.shape}, scale{Type::bf16, blocks};
            const OpCase made = c.add("quantize", {{"block", block}}, {x}, {f8, scale});
            Buffers codes = made.out;
            run_reference(made.spec, made.in, codes);
            c.add("dequantize", {{"block", block}}, {f8, scale}, {x}).in = codes;
        }
        for (const i64 k : {i64{1}, block / 2 + 1}) {
            const Operand values{f, {rows, blocks[1], k}};
            c.add("block_top_k", {{"block", block}}, {x}, {values, {Type::i32, values.shape}});
        }
    }
    if (f != Type::f32) return;
    for (const Sizes& shape : {Sizes{cols, 5}, Sizes{3, cols / 2 + 40, 33}, Sizes{2, 1, 1}})
        c.add("orthogonalize", {}, {{f, shape}}, {{f, shape}});
}

void gathers(Cases& c, Type type, i64 outer, i64 n, i64 inner) {
    const Operand held{type, {outer, n, inner}}, picked{type, {outer, 4, inner}};
    for (const i64 width : {inner, i64{1}}) {
        const Operand ids{Type::i32, {outer, 4, width}};
        c.add("gather", {{"dim", i64{1}}}, {held, ids}, {picked}).in[1] = c.source().integers(ids.count(), -1, n);
    }
}

void ropes(Cases& c, Type f, i64 dim) {
    const Operand x{f, {2, 11, 3, dim}};
    c.add("rope", {{"theta", 10000.0}, {"start", i64{4000}}}, {x}, {x});
    c.add("rope", {{"theta", 500000.0}, {"inverse", true}, {"offset", Sizes{0, 11, 0, 0}}}, {x}, {x});
    c.add("rope", {{"theta", 10000.0}, {"factor", 2.5}}, {x}, {x});
    c.add("rope",
          {{"theta", 500000.0},
           {"start", i64{9000}},
           {"factor", 8.0},
           {"low_freq_factor", 1.0},
           {"high_freq_factor", 4.0},
           {"original_positions", i64{8192}}},
          {x}, {x});
}

void losses(Cases& c, Type f, i64 rows, i64 vocab) {
    const Operand logits{f, {rows, vocab}}, row{Type::f32, {rows}}, t{Type::i32, {rows}};
    const Buffer targets = c.source().integers(rows, -1, vocab - 1);
    c.add("cross_entropy", {{"ignore", i64{-1}}}, {logits, t}, {scalar, scalar}).in[1] = targets;
    c.add("cross_entropy", {{"grad", true}}, {logits, t, scalar}, {scalar, scalar, logits}).in[1] = targets;
    // The second half of a vocabulary that is twice as large.
    const Attributes shard{{"global_shape", Sizes{rows, 2 * vocab}}, {"offset", Sizes{0, vocab}}};
    const Buffer wide = c.source().integers(rows, -1, 2 * vocab - 1);
    const OpCase stats = [&] {
        OpCase& one = c.add("cross_entropy_stats", shard, {logits, row, t}, {row, row});
        one.in[1] = c.source().uniform(Type::f32, rows, 2, 2.5);
        one.in[2] = wide;
        return one;
    }();
    Buffers sums = stats.out;
    run_reference(stats.spec, stats.in, sums);
    std::vector<double> positive = sums[0].values();
    for (double& p : positive) p += 1;
    sums[0].set(positive);
    OpCase& loss = c.add("cross_entropy_loss", {}, {row, row, row, t}, {scalar, scalar});
    loss.in = {stats.in[1], sums[0], sums[1], wide};
    OpCase& grad = c.add("cross_entropy_grad", shard, {logits, row, row, t, scalar}, {logits});
    grad.in[0] = stats.in[0];
    grad.in[1] = stats.in[1];
    grad.in[2] = sums[0];
    grad.in[3] = wide;
}

void tiled_losses(Cases& c, Type f, i64 rows, i64 width, i64 vocab) {
    const Operand x{f, {rows, width}}, by_row{f, {vocab, width}}, by_column{f, {width, vocab}}, bias{f, {vocab}};
    const Operand t{Type::i32, {rows}}, dx{f == Type::f16 ? Type::f32 : f, {rows, width}}, row{Type::f32, {rows}};
    const auto f32 = [](const Operand& like) { return Operand{Type::f32, like.shape}; };
    const Buffer targets = c.source().integers(rows, -1, vocab - 1),
                 wide = c.source().integers(rows, -1, 2 * vocab - 1);
    const Attributes of_rows{{"dim", i64{0}}, {"tile", i64{5}}};
    c.add("linear_cross_entropy", of_rows, {x, by_row, t}, {scalar, scalar}).in[2] = targets;
    for (const bool adds : {false, true}) {
        Attributes a{{"bias_grad", true}, {"dim", i64{1}}, {"grad", true}, {"tile", rows / 2 + 1}};
        if (adds) a.emplace_back("accumulate", true);
        c.add("linear_cross_entropy", a, {x, by_column, t, bias}, {scalar, scalar, dx, f32(by_column), f32(bias)})
            .in[2] = targets;
    }
    // The second half of a vocabulary that is twice as large.
    Attributes shard = of_rows;
    shard.emplace_back("global_shape", Sizes{2 * vocab, width});
    shard.emplace_back("offset", Sizes{vocab, 0});
    const OpCase stats = [&] {
        OpCase& one =
            c.add("linear_cross_entropy_stats", shard, {x, by_row, t}, {{Type::f32, {rows, 1}}, row}, -0.5, 1);
        one.in[2] = wide;
        return one;
    }();
    Buffers made = stats.out;
    run_reference(stats.spec, stats.in, made);
    OpCase& grad = c.add("linear_cross_entropy_grad", shard, {x, by_row, t, row, row}, {dx, f32(by_row)}, 1, 2);
    for (const size_t i : {0, 1, 2}) grad.in[i] = stats.in[i];
    grad.in[3].set(made[0].values());
}

void updates(Cases& c, Type g, i64 n) {
    const Operand p{Type::f32, {n}};
    for (const bool apply : {false, true}) {
        std::vector<Operand> in{p, {g, {n}}, p, p, scalar, scalar, scalar};
        if (apply) in.push_back({Type::u8, {}});
        OpCase& one = c.add("adamw", {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}}, in, {p, p, p});
        one.in[3] = c.source().uniform(Type::f32, n, 0.1, 1);
        one.in[4].set({1e-2});
        one.in[6].set({3});
    }
}

void moves(Cases& c, Type f, i64 a, i64 b, i64 d) {
    const Operand x{f, {a, b, d}};
    c.add("reshape", {}, {x}, {{f, {a * b, d}}});
    for (const Sizes& perm : {Sizes{1, 0, 2}, Sizes{2, 0, 1}, Sizes{0, 2, 1}, Sizes{0, 1, 2}}) {
        Sizes shape;
        for (const i64 d : perm) shape.push_back(x.shape[static_cast<size_t>(d)]);
        c.add("transpose", {{"perm", perm}}, {x}, {{f, shape}});
    }
    c.add("slice", {{"dim", i64{1}}, {"start", i64{2}}, {"size", i64{3}}}, {x}, {{f, {a, 3, d}}});
    c.add("slice", {{"dim", i64{2}}, {"start", i64{3}}, {"size", i64{7}}}, {x}, {{f, {a, b, 7}}});
    c.add("concat", {{"dim", i64{1}}}, {x, {f, {a, 1, d}}, x}, {{f, {a, 2 * b + 1, d}}});
    c.add("concat", {{"dim", i64{2}}}, {x, {f, {a, b, 3}}}, {{f, {a, b, d + 3}}});
    c.add("pad", {{"dim", i64{2}}, {"before", i64{1}}, {"after", i64{4}}}, {x}, {{f, {a, b, d + 5}}});
    c.add("pad", {{"dim", i64{0}}, {"before", i64{2}}, {"after", i64{0}}}, {x}, {{f, {a + 2, b, d}}});
    for (const i64 dim : {0, 1, 2})
        c.add("roll", {{"dim", dim}, {"by", x.shape[static_cast<size_t>(dim)] / 2}}, {x}, {x});
}

}  // namespace orrery::kernels::testing
