// Norms, reductions, tokens, the optimizer, random numbers and moves against the reference.
#include <cstring>

#include "kernels/rules/rules.h"
#include "kernels_compare.h"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {
using Buffers = std::vector<Buffer>;
}

TEST_CASE("cpu: every kernel is there, and none is the reference") {
    for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
        if (!cpu::available(isa)) continue;
        using Pointer = void (*)();
        constexpr size_t n = sizeof(Kernels) / sizeof(Pointer);
        Pointer mine[n], plain[n];
        std::memcpy(mine, &cpu::table(isa), sizeof(mine));
        std::memcpy(plain, &reference::table(), sizeof(plain));
        for (size_t i = 0; i < n; ++i) {
            INFO("isa " << name_of(isa) << ", kernel " << i);
            CHECK(mine[i] != nullptr);
            CHECK(plain[i] != nullptr);
            CHECK(mine[i] != plain[i]);
        }
    }
}

TEST_CASE("cpu: softmax and norms", "[slow]") {
    Source source;
    for (const auto& [rows, cols] : {std::pair<i64, i64>{1, 1}, {7, 33}, {301, 129}, {5, 20001}}) {
        for (const Type type : {Type::f32, Type::bf16}) {
            INFO("rows " << rows << " cols " << cols);
            const i64 n = rows * cols;
            const Buffer x = source.uniform(type, n, -3, 5), dy = source.uniform(type, n);
            const Buffer gain = source.uniform(type, cols, 0.5, 1.5), bias = source.uniform(type, cols);
            const Buffer old = source.uniform(Type::f32, cols), other = source.uniform(type, n, -3, 5);
            compare_with_reference(
                source,
                {Buffer(type, n),
                 Buffer(type, n),
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 Buffer(Type::f32, rows),
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 Buffer(Type::f32, rows),
                 other,
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 other,
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 Buffer(Type::f32, rows),
                 other,
                 Buffer(type, n),
                 Buffer(Type::f32, rows),
                 other},
                [&, rows = rows, cols = cols](const Kernels& k, Context& c, Buffers& y) {
                    k.softmax(c, x.in(), y[0].out(), rows, cols);
                    k.softmax_grad(c, gain.count() == n ? gain.in() : x.in(), dy.in(), y[1].out(), rows, cols);
                    k.layernorm(c, x.in(), gain.in(), bias.in(), {}, y[2].out(), y[3].out(), y[4].out(), {}, rows, cols,
                                1e-5);
                    k.rmsnorm(c, x.in(), gain.in(), {}, y[5].out(), y[6].out(), {}, rows, cols, 1e-5);
                    k.layernorm(c, x.in(), gain.in(), bias.in(), y[10].in(), y[7].out(), y[8].out(), y[9].out(),
                                y[10].out(), rows, cols, 1e-5);
                    k.rmsnorm(c, y[13].in(), gain.in(), x.in(), y[11].out(), y[12].out(), y[13].out(), rows, cols,
                              1e-5);
                    k.layernorm(c, y[17].in(), gain.in(), bias.in(), x.in(), y[14].out(), y[15].out(), y[16].out(),
                                y[17].out(), rows, cols, 1e-5);
                    k.rmsnorm(c, x.in(), gain.in(), y[20].in(), y[18].out(), y[19].out(), y[20].out(), rows, cols,
                              1e-5);
                });
            Buffer y(type, n), mean(Type::f32, rows), rstd(Type::f32, rows), rms(Type::f32, rows);
            Context one;
            reference::table().layernorm(one, x.in(), gain.in(), bias.in(), {}, y.out(), mean.out(), rstd.out(), {},
                                         rows, cols, 1e-5);
            reference::table().rmsnorm(one, x.in(), gain.in(), {}, y.out(), rms.out(), {}, rows, cols, 1e-5);
            for (const bool accumulate : {false, true}) {
                if (cols == 1) continue;  // the gradient is 0 but for rounding
                compare_with_reference(
                    source, {Buffer(type, n), old, old, dy, old, other, old, old, other, old},
                    [&, rows = rows, cols = cols](const Kernels& k, Context& c, Buffers& out) {
                        k.layernorm_grad(c, x.in(), gain.in(), mean.in(), rstd.in(), dy.in(), {}, out[0].out(),
                                         out[1].out(), out[2].out(), rows, cols, accumulate);
                        k.rmsnorm_grad(c, x.in(), gain.in(), rms.in(), out[3].in(), {}, out[3].out(), out[4].out(),
                                       rows, cols, accumulate);
                        k.layernorm_grad(c, x.in(), gain.in(), mean.in(), rstd.in(), dy.in(), out[5].in(), out[5].out(),
                                         out[6].out(), out[7].out(), rows, cols, accumulate);
                        k.rmsnorm_grad(c, x.in(), gain.in(), rms.in(), dy.in(), out[8].in(), out[8].out(), out[9].out(),
                                       rows, cols, accumulate);
                    });
            }
        }
    }
}

TEST_CASE("cpu: layernorm of values far from zero") {
    Source source;
    const Buffer x = source.uniform(Type::f32, 4 * 500, 1000, 1001), one = source.uniform(Type::f32, 500, 1, 1);
    const Buffer zero = source.uniform(Type::f32, 500, 0, 0);
    Context c;
    Buffer y(Type::f32, 2000), mean(Type::f32, 4), rstd(Type::f32, 4);
    cpu::table().layernorm(c, x.in(), one.in(), zero.in(), {}, y.out(), mean.out(), rstd.out(), {}, 4, 500, 1e-5);
    for (const double r : rstd.values()) CHECK(r == Approx(1 / std::sqrt(1.0 / 12 + 1e-5)).epsilon(0.1));
}

TEST_CASE("cpu: reductions", "[slow]") {
    Source source;
    struct Size {
        std::vector<i64> shape;
        std::uint32_t dims;
    };
    for (const auto& z :
         {Size{{1000, 33}, 1}, Size{{1000, 33}, 2}, Size{{1000, 33}, 3}, Size{{5, 300, 7}, 2}, Size{{5, 300, 7}, 5},
          Size{{5, 300, 7}, 0}, Size{{}, 0}, Size{{3, 1, 2050}, 4}, Size{{130, 2050}, 1}, Size{{100000}, 1}}) {
        i64 n = 1, kept = 1;
        for (size_t d = 0; d < z.shape.size(); ++d) {
            n *= z.shape[d];
            if ((z.dims >> d & 1) == 0) kept *= z.shape[d];
        }
        INFO("elements " << n << " dims " << z.dims);
        for (const Type type : {Type::f32, Type::bf16}) {
            const Buffer x = source.uniform(type, n, -0.5, 1), old = source.uniform(Type::f32, kept);
            compare_with_reference(source, {Buffer(Type::f32, kept), old, Buffer(type, kept), Buffer(Type::f32, 1)},
                                   [&](const Kernels& k, Context& c, Buffers& y) {
                                       k.reduce(c, Reduce::sum, x.in(), z.shape, z.dims, y[0].out(), false);
                                       k.reduce(c, Reduce::sum, x.in(), z.shape, z.dims, y[1].out(), true);
                                       k.reduce(c, Reduce::max, x.in(), z.shape, z.dims, y[2].out(), false);
                                       k.sumsq(c, x.in(), y[3].out(), n);
                                   });
        }
    }
}

TEST_CASE("cpu: sums do not depend on the number of threads") {
    Source source;
    const i64 n = 300 * 1030;
    const Buffer x = source.uniform(Type::f32, n);
    const std::vector<i64> shape{300, 1030};
    std::vector<double> expected_sum, expected_square;
    for (const int threads : {1, 2, 3, 5}) {
        Context c(threads);
        Buffer sum(Type::f32, 1030), square(Type::f32, 1);
        cpu::table().reduce(c, Reduce::sum, x.in(), shape, 1, sum.out(), false);
        cpu::table().sumsq(c, x.in(), square.out(), n);
        if (threads == 1) {
            expected_sum = sum.values();
            expected_square = square.values();
        }
        CHECK(sum.values() == expected_sum);
        CHECK(square.values() == expected_square);
    }
}

TEST_CASE("cpu: all_finite") {
    const i64 n = 70001;
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
        Source source;
        Buffer x = source.uniform(type, n);
        for (const double bad :
             {0.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
            for (const i64 at : {i64{0}, i64{40000}, n - 1}) {
                Buffer y = x;
                std::vector<double> v = y.values();
                v[at] = bad;
                y.set(v);
                for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
                    if (!cpu::available(isa)) continue;
                    Context c(2);
                    std::uint8_t finite = 7;
                    cpu::table(isa).all_finite(c, y.in(), &finite, n);
                    CHECK(finite == (bad == 0 ? 1 : 0));
                }
            }
        }
    }
}

TEST_CASE("cpu: embedding and its gradient") {
    Source source;
    for (const i64 cols : {3, 129, 2050}) {
        for (const Type type : {Type::f32, Type::bf16}) {
            const Embedding e{.tokens = 700, .start = 5, .rows = 40, .cols = cols};
            Buffer tokens = source.integers(700, 0, 50);
            const Buffer table = source.uniform(type, 40 * cols), dy = source.uniform(type, 700 * cols);
            const Buffer old = source.uniform(Type::f32, 40 * cols);
            compare_with_reference(source, {Buffer(type, 700 * cols), Buffer(Type::f32, 40 * cols), old},
                                   [&](const Kernels& k, Context& c, Buffers& y) {
                                       const auto* ids = tokens.as<std::int32_t>();
                                       Embedding add = e;
                                       add.accumulate = true;
                                       k.embedding(c, e, ids, table.in(), y[0].out());
                                       k.embedding_grad(c, e, ids, dy.in(), y[1].out());
                                       k.embedding_grad(c, add, ids, dy.in(), y[2].out());
                                   });
        }
    }
}

TEST_CASE("rope without its theta is refused: the op's definition alone has a default") {
    const rules::Operand x{Type::f32, {1, 3, 2, 4}};
    const rules::Target target{.kernels = reference::table()};
    CHECK_THROWS_WITH(rules::resolve({"rope", {}, {x}, {x}}, target), Catch::Contains("\"theta\" is missing"));
    CHECK_NOTHROW(rules::resolve({"rope", {{"theta", 500.0}}, {x}, {x}}, target));
}

TEST_CASE("cpu: rope, also in place and far from the start") {
    Source source;
    for (const auto& s : {Rope{2, 70, 3, 10, 0, 10000, false}, Rope{1, 300, 1, 64, 100000, 500000, true},
                          Rope{1, 3, 2, 2, 0, 10000, false}, Rope{1, 70, 2, 10, 0, 10000, false, 4.5},
                          Rope{1, 300, 1, 64, 9000, 500000, false, 8, 1, 4, 8192}}) {
        for (const Type type : {Type::f32, Type::bf16}) {
            const i64 n = s.batch * s.seq * s.heads * s.dim;
            const Buffer x = source.uniform(type, n);
            compare_with_reference(source, {Buffer(type, n), x}, [&](const Kernels& k, Context& c, Buffers& y) {
                k.rope(c, s, x.in(), nullptr, y[0].out());
                k.rope(c, s, y[1].in(), nullptr, y[1].out());
            });
        }
    }
}

TEST_CASE("cpu: cross entropy, with its gradient in place") {
    Source source;
    for (const auto& [rows, vocab] : {std::pair<i64, i64>{2, 3}, {300, 257}, {9, 50257}}) {
        for (const Type type : {Type::f32, Type::bf16}) {
            INFO("rows " << rows << " vocab " << vocab);
            const Buffer logits = source.uniform(type, rows * vocab, -8, 8);
            Buffer targets = source.integers(rows, rows > 1 ? -1 : 0, vocab - 1);
            if (rows > 1) targets.as<std::int32_t>()[1] = -1;
            // The unlikeliest token: a sum over few rows must not be near zero, where f32 has no relative accuracy.
            const std::vector<double> values = logits.values();
            targets.as<std::int32_t>()[0] =
                static_cast<std::int32_t>(std::min_element(values.begin(), values.begin() + vocab) - values.begin());
            compare_with_reference(
                source, {Buffer(Type::f32, 1), Buffer(Type::f32, 1), logits, Buffer(Type::f32, 1)},
                [&, rows = rows, vocab = vocab](const Kernels& k, Context& c, Buffers& y) {
                    const auto* t = targets.as<std::int32_t>();
                    k.cross_entropy(c, logits.in(), t, {}, y[3].out(), y[1].out(), {}, rows, vocab, -1);
                    k.cross_entropy(c, y[2].in(), t, {}, y[0].out(), y[1].out(), y[2].out(), rows, vocab, -1);
                });
        }
    }
    Buffer logits = source.uniform(Type::f32, 10), loss(Type::f32, 1), count(Type::f32, 1);
    const std::int32_t beyond[] = {10};
    Context c;
    cpu::table().cross_entropy(c, logits.in(), beyond, {}, loss.out(), count.out(), {}, 1, 10, -1);
    CHECK(std::isnan(loss.values()[0]));
}

TEST_CASE("cpu: adamw") {
    Source source;
    const i64 n = 40003;
    const AdamW s{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    const Buffer p = source.uniform(Type::f32, n), m = source.uniform(Type::f32, n),
                 v = source.uniform(Type::f32, n, 0, 1);
    const float lr = 3e-3f, scale = 0.25f, step = 7;
    for (const Type type : {Type::f32, Type::bf16}) {
        const Buffer g = source.uniform(type, n);
        for (const std::uint8_t apply : {0, 1}) {
            compare_with_reference(source, {p, m, v}, [&](const Kernels& k, Context& c, Buffers& y) {
                k.adamw(c, s, y[0].out(), g.in(), y[1].out(), y[2].out(), &lr, &scale, &step, &apply, n);
            });
        }
    }
}

TEST_CASE("cpu: random numbers and dropout") {
    Source source;
    const std::uint32_t seed = source.seed;
    const std::vector<i64> global{20, 1100, 9}, local{7, 1031, 5}, offset{3, 60, 2}, flat{3 * 16384 + 5};
    const i64 n = 7 * 1031 * 5, m = flat[0];
    for (const Draw kind : {Draw::normal, Draw::uniform}) {
        compare_with_reference(source, {Buffer(Type::f32, n), Buffer(Type::f32, m)},
                               [&](const Kernels& k, Context& c, Buffers& y) {
                                   k.random(c, y[0].out(), {local, global, offset}, kind, 0.7, 1ull << 40, &seed);
                                   k.random(c, y[1].out(), {flat}, kind, 0.7, 3, &seed);
                               });
    }
    for (const Type type : {Type::f32, Type::bf16}) {
        const Buffer x = source.uniform(type, n), z = source.uniform(type, m);
        compare_with_reference(source, {Buffer(type, n), z}, [&](const Kernels& k, Context& c, Buffers& y) {
            k.dropout(c, x.in(), y[0].out(), {local, global, offset}, 0.1, 11, &seed);
            k.dropout(c, y[1].in(), y[1].out(), {flat}, 0.5, 12, &seed);
        });
    }
}

TEST_CASE("cpu: what is drawn by places is what those places draw") {
    Source source;
    const std::uint32_t seed = source.seed;
    const i64 rows = 3, tokens = 40, cols = 70;
    Buffer places = source.integers(rows * tokens, 0, 89);
    for (const i64 inner : {cols, i64{1}}) {  // [rows, tokens, cols] and [rows, tokens]
        std::vector<i64> local{rows, tokens, inner}, all{5, 90, inner}, offset{1, 0, 0};
        if (inner == 1)
            for (std::vector<i64>* sizes : {&local, &all, &offset}) sizes->pop_back();
        const Region at{local, all, offset, places.as<std::int32_t>()};
        const i64 n = rows * tokens * inner, whole = 5 * 90 * inner;
        const Buffer x = source.uniform(Type::f32, n, 1, 2);
        compare_with_reference(source, {Buffer(Type::f32, n), Buffer(Type::f32, n), Buffer(Type::f32, n)},
                               [&](const Kernels& k, Context& c, Buffers& y) {
                                   k.dropout(c, x.in(), y[0].out(), at, 0.3, 5, &seed);
                                   k.random(c, y[1].out(), at, Draw::uniform, 1, 6, &seed);
                                   k.random(c, y[2].out(), at, Draw::normal, 1, 6, &seed);
                               });
        Buffer here(Type::f32, n), there(Type::f32, whole);
        Context c;
        reference::table().random(c, here.out(), at, Draw::uniform, 1, 6, &seed);
        reference::table().random(c, there.out(), {all}, Draw::uniform, 1, 6, &seed);
        const std::vector<double> some = here.values(), every = there.values();
        i64 other = 0;
        for (i64 i = 0; i < n; ++i) {
            const i64 token = i / inner, row = 1 + token / tokens, place = places.as<std::int32_t>()[token];
            other += some[static_cast<size_t>(i)] != every[static_cast<size_t>((row * 90 + place) * inner + i % inner)];
        }
        CHECK(other == 0);
    }
}

TEST_CASE("cpu: transpose, slice, concat and pad") {
    Source source;
    const std::pair<std::vector<i64>, std::vector<int>> cases[] = {{{33, 65}, {1, 0}},
                                                                   {{3, 70, 5, 16}, {0, 2, 1, 3}},
                                                                   {{3, 70, 5, 16}, {0, 2, 3, 1}},
                                                                   {{4, 3, 2, 5}, {3, 2, 1, 0}},
                                                                   {{7}, {0}},
                                                                   {{2, 1, 130, 129}, {1, 0, 3, 2}},
                                                                   {{}, {}}};
    for (const Type type : {Type::f32, Type::bf16, Type::u8, Type::f64}) {
        for (const auto& [shape, perm] : cases) {
            i64 n = 1;
            for (i64 size : shape) n *= size;
            const Buffer x = type == Type::u8 ? source.uniform(type, n, 0, 255) : source.uniform(type, n);
            compare_with_reference(source, {Buffer(type, n)},
                                   [&, &s = shape, &p = perm](const Kernels& k, Context& c, Buffers& y) {
                                       k.transpose(c, x.in(), s, p, y[0].out());
                                   });
        }
        const std::vector<i64> shape{50, 9, 31}, sizes{9, 4};
        const Buffer x = source.uniform(type, 50 * 9 * 31, 0, 200), z = source.uniform(type, 50 * 4 * 31, 0, 200);
        compare_with_reference(source,
                               {Buffer(type, 50 * 4 * 31), Buffer(type, 50 * 13 * 31), Buffer(type, 50 * 12 * 31),
                                Buffer(type, 50 * 9 * 3)},
                               [&](const Kernels& k, Context& c, Buffers& y) {
                                   const In parts[] = {x.in(), z.in()};
                                   k.slice(c, x.in(), shape, 1, 3, 4, y[0].out());
                                   k.concat(c, std::span<const In>(parts, 2), shape, 1, sizes, y[1].out());
                                   k.pad(c, x.in(), shape, 1, 1, 2, y[2].out());
                                   k.slice(c, x.in(), shape, 2, 28, 3, y[3].out());
                               });
    }
}
