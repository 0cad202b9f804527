// Matrix products and attention against the reference.
#include "kernels_compare.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

TEST_CASE("cpu: matmul in every form", "[slow]") {
    Source source;
    struct Size {
        i64 batch, m, n, k;
        bool shared;
    };
    for (const Size z : {Size{1, 1, 1, 1, true}, Size{1, 129, 67, 45, true}, Size{3, 33, 17, 29, false},
                         Size{3, 33, 17, 29, true}, Size{1, 300, 801, 70, true}, Size{1, 45, 30, 1100, true}}) {
        for (const Type type : {Type::f32, Type::bf16}) {
            const Buffer a = source.uniform(type, z.batch * z.m * z.k);
            const Buffer b = source.uniform(type, (z.shared ? 1 : z.batch) * z.k * z.n);
            const Buffer bias = source.uniform(type, z.n), y32 = source.uniform(Type::f32, z.batch * z.m * z.n);
            const Buffer y = source.uniform(type, z.batch * z.m * z.n);
            for (int form = 0; form < 4; ++form) {
                INFO("m " << z.m << " n " << z.n << " k " << z.k << " form " << form);
                Matmul s{z.batch, z.m, z.n, z.k, (form & 1) != 0, (form & 2) != 0, z.shared, false};
                compare_with_reference(
                    source, {y, y32, y, y32},
                    [&](const Kernels& k, Context& c, std::vector<Buffer>& out) {
                        k.matmul(c, s, a.in(), b.in(), {}, out[0].out());
                        k.matmul(c, s, a.in(), b.in(), bias.in(), out[1].out());
                        Matmul add = s;
                        add.accumulate = true;
                        k.matmul(c, add, a.in(), b.in(), bias.in(), out[2].out());
                        k.matmul(c, add, a.in(), b.in(), {}, out[3].out());
                    },
                    every_kind);
            }
        }
    }
}

TEST_CASE("cpu: matmul of nothing") {
    Source source;
    compare_with_reference(
        source, {source.uniform(Type::f32, 6), source.uniform(Type::f32, 6)},
        [&](const Kernels& k, Context& c, std::vector<Buffer>& out) {
            const Buffer empty(Type::f32, 0);
            k.matmul(c, {.m = 2, .n = 3, .k = 0}, empty.in(), empty.in(), {}, out[0].out());
            k.matmul(c, {.m = 2, .n = 3, .k = 0, .accumulate = true}, empty.in(), empty.in(), {}, out[1].out());
        },
        every_kind);
}

TEST_CASE("cpu: matmul with bias and gelu") {
    Source source;
    for (const Type type : {Type::f32, Type::bf16}) {
        const Buffer a = source.uniform(type, 300 * 40), b = source.uniform(type, 40 * 1100),
                     bias = source.uniform(type, 1100);
        for (const Unary op : {Unary::gelu_tanh, Unary::gelu_erf}) {
            compare_with_reference(
                source, {Buffer(type, 300 * 1100), Buffer(type, 300 * 1100)},
                [&](const Kernels& k, Context& c, std::vector<Buffer>& out) {
                    k.matmul_bias_gelu(c, {.m = 300, .n = 1100, .k = 40}, op, a.in(), b.in(), bias.in(), out[0].out(),
                                       out[1].out());
                },
                every_kind);
        }
    }
}

TEST_CASE("cpu: a gelu or its slope behind a product has the bits of two kernels", "[slow]") {
    Source source;
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
        const Matmul s{.m = 530, .n = 810, .k = 45}, turned{.m = 530, .n = 810, .k = 45, .trans_b = true};
        // A sum so long that threads share it.
        const Matmul tall{.m = 24, .n = 40, .k = 4200};
        const Buffer a = source.uniform(type, 530 * 45), b = source.uniform(type, 45 * 810),
                     bias = source.uniform(type, 810), pre = source.uniform(type, 530 * 810),
                     long_a = source.uniform(type, 24 * 4200), long_b = source.uniform(type, 40 * 4200);
        const auto compare = [&](bool erf, int threads, Products products) {
            for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
                if (!cpu::available(isa)) continue;
                INFO(name_of(isa) << ", type " << static_cast<int>(type) << ", erf " << erf << ", threads " << threads
                                  << ", products " << static_cast<int>(products) << ", seed " << source.seed);
                const Kernels& k = cpu::table(isa);
                Context c(threads);
                c.use(products);
                const Unary op = erf ? Unary::gelu_erf : Unary::gelu_tanh;
                const UnaryGrad slope = erf ? UnaryGrad::gelu_erf : UnaryGrad::gelu_tanh;
                Buffer x(type, 530 * 810), y(type, 530 * 810), x2 = x, y2 = y, y3 = y;
                k.matmul(c, s, a.in(), b.in(), bias.in(), x.out());
                k.unary(c, op, x.in(), y.out(), 530 * 810);
                k.matmul_bias_gelu(c, s, op, a.in(), b.in(), bias.in(), y2.out(), x2.out());
                k.matmul_bias_gelu(c, s, op, a.in(), b.in(), bias.in(), y3.out(), {});
                CHECK((x2.same_bits(x) && y2.same_bits(y) && y3.same_bits(y)));
                k.matmul(c, turned, a.in(), b.in(), {}, x.out());
                k.unary_grad(c, slope, pre.in(), x.in(), y.out(), 530 * 810);
                k.matmul_gelu_grad(c, turned, slope, a.in(), b.in(), pre.in(), y2.out());
                CHECK(y2.same_bits(y));
                Buffer sum(type, 24 * 40), one(type, 24 * 40), two(type, 24 * 40);
                k.matmul(c, tall, long_a.in(), long_b.in(), {}, sum.out());
                k.unary_grad(c, slope, pre.in(), sum.in(), one.out(), 24 * 40);
                k.matmul_gelu_grad(c, tall, slope, long_a.in(), long_b.in(), pre.in(), two.out());
                CHECK(two.same_bits(one));
            }
        };
        for (const bool erf : {false, true})
            for (const int threads : {1, 3})
                for (const Products products : every_kind) compare(erf, threads, products);
    }
}

TEST_CASE("cpu: attention and its gradient", "[slow]") {
    Source source;
    struct Size {
        i64 batch, queries, keys, heads, groups, dim, shift;
    };
    struct Mask {
        bool causal;
        i64 window;
    };
    for (const Size z : {Size{2, 37, 37, 3, 3, 16, 0}, Size{1, 130, 130, 4, 2, 20, 0}, Size{1, 70, 1050, 2, 1, 8, 980},
                         Size{1, 600, 600, 1, 1, 12, 0}, Size{2, 5, 9, 2, 2, 4, -2}, Size{1, 9, 5, 2, 1, 3, 2},
                         Size{1, 1, 1, 1, 1, 1, 0}}) {
        for (const auto& [causal, window] :
             {Mask{false, 0}, Mask{true, 0}, Mask{true, 2}, Mask{true, 29}, Mask{true, 301}}) {
            for (const Type type : {Type::f32, Type::bf16}) {
                INFO("queries " << z.queries << " keys " << z.keys << " causal " << causal << " window " << window);
                const Attention s{z.batch, z.queries, z.keys, z.heads, z.groups, z.dim, 0.3, causal, z.shift, window};
                const i64 nq = z.batch * z.queries * z.heads * z.dim, nk = z.batch * z.keys * z.groups * z.dim;
                const i64 nl = z.batch * z.heads * z.queries;
                const Buffer q = source.uniform(type, nq, -2, 2), k = source.uniform(type, nk, -2, 2);
                const Buffer v = source.uniform(type, nk), d_o = source.uniform(type, nq);
                compare_with_reference(source, {Buffer(type, nq), Buffer(Type::f32, nl)},
                                       [&](const Kernels& t, Context& c, std::vector<Buffer>& y) {
                                           t.attention(c, s, q.in(), k.in(), v.in(), {}, y[0].out(), y[1].out());
                                       });
                Buffer o(type, nq), lse(Type::f32, nl);
                Context one;
                reference::table().attention(one, s, q.in(), k.in(), v.in(), {}, o.out(), lse.out());
                compare_with_reference(source, {Buffer(type, nq), Buffer(type, nk), Buffer(type, nk)},
                                       [&](const Kernels& t, Context& c, std::vector<Buffer>& y) {
                                           t.attention_grad(c, s, q.in(), k.in(), v.in(), o.in(), lse.in(), d_o.in(),
                                                            {}, {}, y[0].out(), y[1].out(), y[2].out());
                                       });
            }
        }
    }
}

TEST_CASE("cpu: grouped_matmul of many rows, in place and copied together", "[slow]") {
    Source source;
    constexpr i64 groups = 3, experts = 4, slots = 700, k = 40, n = 56;
    const GroupedMatmul s{.groups = groups, .experts = experts, .slots = slots, .k = k, .n = n};
    // Large pieces, small ones of which several go together, an expert with rows in one group alone, and one without.
    std::vector<double> held{700, 3, 0, 0, 129, 60, 650, 0, 20, 999, 0, -4};
    const Buffer ids = [&] {
        Buffer b(Type::i32, groups * experts);
        b.set(held);
        return b;
    }();
    const auto* const counts = static_cast<const std::int32_t*>(ids.in().data);
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
        const Buffer x = source.uniform(type, s.rows() * k), w = source.uniform(type, experts * k * n);
        const Buffer dy = source.uniform(type, s.rows() * n), dw = source.uniform(Type::f32, experts * k * n);
        const Buffer own = source.uniform(type, experts * k * n);
        compare_with_reference(
            source, {Buffer(type, s.rows() * n), Buffer(type, s.rows() * n), dw, dw, own},
            [&](const Kernels& kernels, Context& c, std::vector<Buffer>& out) {
                GroupedMatmul turned = s, adds = s;
                turned.trans_b = adds.accumulate = true;
                kernels.grouped_matmul(c, s, x.in(), w.in(), counts, out[0].out());
                kernels.grouped_matmul(c, turned, x.in(), w.in(), counts, out[1].out());
                kernels.grouped_matmul_dw(c, s, x.in(), dy.in(), counts, out[2].out());
                kernels.grouped_matmul_dw(c, adds, x.in(), dy.in(), counts, out[3].out());
                kernels.grouped_matmul_dw(c, adds, x.in(), dy.in(), counts, out[4].out());
            },
            every_kind);
    }
}
