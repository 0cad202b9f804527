// The vector kernels of one element, and those that broadcast, against the reference.
#include "kernels_compare.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

TEST_CASE("cpu: unary functions") {
    Source source;
    const i64 n = 2 * 16384 + 1029;
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
        for (int i = 0; i <= static_cast<int>(Unary::gelu_erf); ++i) {
            const auto op = static_cast<Unary>(i);
            INFO("unary " << i);
            const bool positive = op == Unary::log || op == Unary::sqrt || op == Unary::rsqrt;
            const Buffer x = source.uniform(type, n, positive ? 0.1 : -9, 9);
            compare_with_reference(
                source, {Buffer(type, n)},
                [&](const Kernels& k, Context& c, std::vector<Buffer>& y) { k.unary(c, op, x.in(), y[0].out(), n); });
        }
    }
}

TEST_CASE("cpu: exp over its whole range, and what is not a number") {
    Source source;
    const Buffer wide = source.uniform(Type::f32, 4001, -86.5, 88.7);
    Buffer edge(Type::f32, 6);
    edge.set({-INFINITY, INFINITY, NAN, 0.0, 88.72, 90.0});
    Context c;
    for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
        if (!cpu::available(isa)) continue;
        INFO("isa " << name_of(isa));
        Buffer y(Type::f32, 4001), z(Type::f32, 6);
        cpu::table(isa).unary(c, Unary::exp, wide.in(), y.out(), 4001);
        double worst = 0;
        const std::vector<double> xs = wide.values(), ys = y.values();
        for (size_t i = 0; i < xs.size(); ++i) worst = std::max(worst, std::fabs(ys[i] / std::exp(xs[i]) - 1));
        CHECK(worst < 2.5e-7);
        cpu::table(isa).unary(c, Unary::exp, edge.in(), z.out(), 6);
        const std::vector<double> e = z.values();
        CHECK(e[0] == 0);
        CHECK(e[1] == INFINITY);
        CHECK(std::isnan(e[2]));
        CHECK(e[3] == 1);
        CHECK(e[4] == Approx(std::exp(static_cast<double>(88.72f))).epsilon(1e-6));
        CHECK(e[5] == INFINITY);
    }
}

TEST_CASE("cpu: gradients of unary functions and swiglu") {
    Source source;
    const i64 n = 16384 + 37;
    for (const Type type : {Type::f32, Type::bf16}) {
        const Buffer x = source.uniform(type, n, -6, 6), dy = source.uniform(type, n), up = source.uniform(type, n);
        for (const UnaryGrad op : {UnaryGrad::gelu_tanh, UnaryGrad::gelu_erf, UnaryGrad::silu, UnaryGrad::relu}) {
            compare_with_reference(source, {Buffer(type, n)},
                                   [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                                       k.unary_grad(c, op, x.in(), dy.in(), y[0].out(), n);
                                   });
        }
        compare_with_reference(source, {Buffer(type, n), Buffer(type, n), Buffer(type, n)},
                               [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                                   k.swiglu(c, x.in(), up.in(), y[0].out(), n);
                                   k.swiglu_grad(c, x.in(), up.in(), dy.in(), y[1].out(), y[2].out(), n);
                               });
    }
}

TEST_CASE("cpu: swiglu_grad in place") {
    Source source;
    const i64 n = 1500;
    const Buffer x = source.uniform(Type::f32, n), up = source.uniform(Type::f32, n), dy = source.uniform(Type::f32, n);
    compare_with_reference(source, {x, up}, [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
        k.swiglu_grad(c, y[0].in(), y[1].in(), dy.in(), y[0].out(), y[1].out(), n);
    });
}

TEST_CASE("cpu: full, scale and cast") {
    Source source;
    const i64 n = 1031;
    for (const Type from : {Type::f32, Type::bf16, Type::f16}) {
        const Buffer x = source.uniform(from, n);
        for (const Type to : {Type::f32, Type::bf16, Type::f16}) {
            compare_with_reference(source, {Buffer(to, n), Buffer(to, n), Buffer(to, n)},
                                   [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                                       k.full(c, y[0].out(), n, 1.5);
                                       k.scale(c, x.in(), y[1].out(), n, -0.3);
                                       k.cast(c, x.in(), y[2].out(), n);
                                   });
        }
    }
    for (const Type type : {Type::i32, Type::u32, Type::f64, Type::u8, Type::i8, Type::f8e4m3, Type::f8e5m2}) {
        const bool only_zero = type == Type::f8e4m3 || type == Type::f8e5m2;  // the rule of full allows no other value
        compare_with_reference(source, {Buffer(type, n)}, [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
            k.full(c, y[0].out(), n, only_zero ? 0 : 5);
        });
    }
    const Buffer tokens = source.integers(n, 0, 255);
    compare_with_reference(source, {Buffer(Type::f32, n)}, [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
        k.cast(c, tokens.in(), y[0].out(), n);
    });
}

TEST_CASE("cpu: broadcasting") {
    Source source;
    const std::vector<std::pair<std::vector<i64>, std::vector<i64>>> cases = {{{5, 7, 129}, {5, 7, 129}},
                                                                              {{5, 7, 129}, {129}},
                                                                              {{5, 7, 129}, {}},
                                                                              {{}, {33}},
                                                                              {{5, 7, 129}, {7, 1}},
                                                                              {{5, 1, 9}, {4, 1}},
                                                                              {{300, 1}, {1, 700}},
                                                                              {{3, 1, 5, 1, 2}, {4, 1, 6, 1}},
                                                                              {{1}, {1, 1}},
                                                                              {{}, {}},
                                                                              {{2, 3, 2048}, {3, 2048}}};
    for (const auto& [a_shape, b_shape] : cases) {
        const auto size = [](const std::vector<i64>& s) {
            i64 n = 1;
            for (i64 d : s) n *= d;
            return n;
        };
        i64 n = 1;
        for (size_t d = 0; d < std::max(a_shape.size(), b_shape.size()); ++d) {
            const i64 a = d < a_shape.size() ? a_shape[a_shape.size() - 1 - d] : 1;
            const i64 b = d < b_shape.size() ? b_shape[b_shape.size() - 1 - d] : 1;
            n *= std::max(a, b);
        }
        for (const Type type : {Type::f32, Type::bf16}) {
            const Buffer a = source.uniform(type, size(a_shape), 0.5, 2),
                         b = source.uniform(type, size(b_shape), 0.5, 2);
            for (int i = 0; i <= static_cast<int>(Binary::pow); ++i) {
                compare_with_reference(
                    source, {Buffer(type, n)},
                    [&, &p = a_shape, &q = b_shape](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                        k.binary(c, static_cast<Binary>(i), a.in(), p, b.in(), q, y[0].out());
                    });
            }
            compare_with_reference(
                source, {Buffer(Type::u8, n)},
                [&, &p = a_shape, &q = b_shape](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                    k.compare(c, Compare::less, a.in(), p, b.in(), q, y[0].out());
                });
        }
    }
}

TEST_CASE("cpu: select, comparisons of integers, accumulation into another type") {
    Source source;
    const std::vector<i64> shape{9, 130}, row{130}, column{9, 1};
    const Buffer c8 = source.integers(9, 0, 1), a = source.uniform(Type::f32, 9 * 130),
                 b = source.uniform(Type::f32, 130);
    Buffer condition(Type::u8, 9);
    condition.set(c8.values());
    const Buffer i = source.integers(130, 0, 3), j = source.integers(130, 0, 3), half = source.uniform(Type::bf16, 130);
    compare_with_reference(source, {Buffer(Type::f32, 9 * 130), Buffer(Type::u8, 130), b},
                           [&](const Kernels& k, Context& c, std::vector<Buffer>& y) {
                               k.select(c, condition.in(), column, a.in(), shape, b.in(), row, y[0].out());
                               k.compare(c, Compare::equal, i.in(), row, j.in(), row, y[1].out());
                               k.binary(c, Binary::add, y[2].in(), row, half.in(), row, y[2].out());
                           });
}
