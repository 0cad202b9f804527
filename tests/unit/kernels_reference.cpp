// The reference kernels' gradients against central differences in f64, and their values where a closed form exists.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/kernels.h"

using namespace orrery::kernels;
using i64 = std::int64_t;
using Values = std::vector<double>;

namespace {

const Kernels& ref = reference::table();

Values draw_values(size_t n, unsigned seed, double low = -1, double high = 1) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    Values v(n);
    for (double& e : v) e = uniform(engine);
    return v;
}

/// d(sum of weight * f(x)) / dx by central differences.
Values numeric(Values x, const Values& weight, const std::function<Values(const Values&)>& f) {
    Values d(x.size());
    const double h = 1e-5;
    for (size_t i = 0; i < x.size(); ++i) {
        const double at = x[i];
        x[i] = at + h;
        const Values up = f(x);
        x[i] = at - h;
        const Values down = f(x);
        x[i] = at;
        for (size_t j = 0; j < weight.size(); ++j) d[i] += weight[j] * (up[j] - down[j]) / (2 * h);
    }
    return d;
}

void check_close(const Values& got, const Values& expected) {
    REQUIRE(got.size() == expected.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    CHECK(std::sqrt(error) <= 1e-8 * std::sqrt(norm) + 1e-10);
    CHECK(norm > 0);
}

}  // namespace

TEST_CASE("reference: gradients of elementwise functions") {
    Context c;
    const std::pair<UnaryGrad, Unary> pairs[] = {{UnaryGrad::gelu_tanh, Unary::gelu_tanh},
                                                 {UnaryGrad::gelu_erf, Unary::gelu_erf},
                                                 {UnaryGrad::silu, Unary::silu},
                                                 {UnaryGrad::relu, Unary::relu}};
    const Values x = draw_values(33, 1, -4, 4), dy = draw_values(33, 2);
    for (auto [grad, op] : pairs) {
        Values dx(33);
        ref.unary_grad(c, grad, x.data(), dy.data(), dx.data(), 33);
        check_close(dx, numeric(x, dy, [&](const Values& v) {
                        Values y(33);
                        ref.unary(c, op, v.data(), y.data(), 33);
                        return y;
                    }));
    }
    const Values up = draw_values(33, 3);
    Values dgate(33), dup(33);
    ref.swiglu_grad(c, x.data(), up.data(), dy.data(), dgate.data(), dup.data(), 33);
    const auto swiglu = [&](const Values& g, const Values& u) {
        Values y(33);
        ref.swiglu(c, g.data(), u.data(), y.data(), 33);
        return y;
    };
    check_close(dgate, numeric(x, dy, [&](const Values& v) { return swiglu(v, up); }));
    check_close(dup, numeric(up, dy, [&](const Values& v) { return swiglu(x, v); }));
}

TEST_CASE("reference: gradient of softmax") {
    Context c;
    const Values x = draw_values(35, 4, -3, 3), dy = draw_values(35, 5);
    const auto softmax = [&](const Values& v) {
        Values y(35);
        ref.softmax(c, v.data(), y.data(), 5, 7);
        return y;
    };
    Values dx(35);
    const Values y = softmax(x);
    ref.softmax_grad(c, y.data(), dy.data(), dx.data(), 5, 7);
    check_close(dx, numeric(x, dy, softmax));
}

TEST_CASE("reference: gradients of layernorm and rmsnorm") {
    Context c;
    const i64 rows = 4, cols = 9;
    const Values x = draw_values(36, 6), gain = draw_values(9, 7), bias = draw_values(9, 8), dy = draw_values(36, 9);
    Values y(36), mean(4), rstd(4), dx(36), dgain(9, 1.0), dbias(9, 1.0);
    const auto layernorm = [&](const Values& xs, const Values& g, const Values& b) {
        ref.layernorm(c, xs.data(), g.data(), b.data(), {}, y.data(), mean.data(), rstd.data(), {}, rows, cols, 1e-5);
        return y;
    };
    layernorm(x, gain, bias);
    ref.layernorm_grad(c, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(), {}, dx.data(), dgain.data(),
                       dbias.data(), rows, cols, true);
    for (double& e : dgain) e -= 1;
    for (double& e : dbias) e -= 1;
    check_close(dx, numeric(x, dy, [&](const Values& v) { return layernorm(v, gain, bias); }));
    check_close(dgain, numeric(gain, dy, [&](const Values& v) { return layernorm(x, v, bias); }));
    check_close(dbias, numeric(bias, dy, [&](const Values& v) { return layernorm(x, gain, v); }));

    const auto rmsnorm = [&](const Values& xs, const Values& g) {
        ref.rmsnorm(c, xs.data(), g.data(), {}, y.data(), rstd.data(), {}, rows, cols, 1e-5);
        return y;
    };
    rmsnorm(x, gain);
    ref.rmsnorm_grad(c, x.data(), gain.data(), rstd.data(), dy.data(), {}, dx.data(), dgain.data(), rows, cols, false);
    check_close(dx, numeric(x, dy, [&](const Values& v) { return rmsnorm(v, gain); }));
    check_close(dgain, numeric(gain, dy, [&](const Values& v) { return rmsnorm(x, v); }));
}

TEST_CASE("reference: gradients of attention with grouped heads") {
    Context c;
    struct Mask {
        bool causal;
        i64 window;
    };
    for (const auto& [causal, window] : {Mask{false, 0}, Mask{true, 0}, Mask{true, 2}, Mask{true, 3}}) {
        const Attention s{2, 4, 5, 4, 2, 3, 0.6, causal, 1, window};
        const Values q = draw_values(96, 10), k = draw_values(60, 11), v = draw_values(60, 12),
                     d_o = draw_values(96, 13);
        Values o(96), lse(32), dq(96), dk(60), dv(60);
        const auto run = [&](const Values& qs, const Values& ks, const Values& vs) {
            ref.attention(c, s, qs.data(), ks.data(), vs.data(), {}, o.data(), lse.data());
            return o;
        };
        run(q, k, v);
        ref.attention_grad(c, s, q.data(), k.data(), v.data(), o.data(), lse.data(), d_o.data(), {}, {}, dq.data(),
                           dk.data(), dv.data());
        check_close(dq, numeric(q, d_o, [&](const Values& x) { return run(x, k, v); }));
        check_close(dk, numeric(k, d_o, [&](const Values& x) { return run(q, x, v); }));
        check_close(dv, numeric(v, d_o, [&](const Values& x) { return run(q, k, x); }));
    }
}

TEST_CASE("reference: a query that sees no key") {
    Context c;
    const Attention s{1, 2, 2, 1, 1, 1, 1.0, true, -1};
    const Values q{1, 1}, k{1, 2}, v{5, 7};
    Values o(2), lse(2);
    ref.attention(c, s, q.data(), k.data(), v.data(), {}, o.data(), lse.data());
    CHECK(o == Values{0, 5});
    CHECK(lse[0] == -INFINITY);
    CHECK(lse[1] == 1);
}

TEST_CASE("reference: a window leaves a query its own position and those before it") {
    Context c;
    const Values q(4, 0.0), k(6, 1.0), v{1, 2, 4, 8, 16, 32};  // a query's output is the mean of what it sees
    Values o(4), lse(4);
    const auto seen = [&](i64 shift, i64 window) {
        const Attention s{1, 4, 6, 1, 1, 1, 1.0, true, shift, window};
        ref.attention(c, s, q.data(), k.data(), v.data(), {}, o.data(), lse.data());
        return o;
    };
    CHECK(seen(0, 1) == Values{1, 2, 4, 8});
    check_close(seen(0, 2), Values{1, 1.5, 3, 6});
    check_close(seen(2, 3), Values{7.0 / 3, 14.0 / 3, 28.0 / 3, 56.0 / 3});
    CHECK(seen(3, 1) == Values{8, 16, 32, 0});  // the last query's window lies behind the keys
    CHECK(lse[3] == -INFINITY);
    CHECK(seen(-2, 1) == Values{0, 0, 1, 2});
    check_close(seen(2, 6), seen(2, 0));
}

TEST_CASE("reference: gradients of matmul are its transposed forms") {
    Context c;
    const Values a = draw_values(12, 14), b = draw_values(20, 15), dy = draw_values(15, 16);  // [3,4] [4,5]
    const auto product = [&](const Values& x, const Values& w) {
        Values y(15);
        ref.matmul(c, {.m = 3, .n = 5, .k = 4}, x.data(), w.data(), {}, y.data());
        return y;
    };
    Values da(12), db(20);
    ref.matmul(c, {.m = 3, .n = 4, .k = 5, .trans_b = true}, dy.data(), b.data(), {}, da.data());
    ref.matmul(c, {.m = 4, .n = 5, .k = 3, .trans_a = true}, a.data(), dy.data(), {}, db.data());
    check_close(da, numeric(a, dy, [&](const Values& v) { return product(v, b); }));
    check_close(db, numeric(b, dy, [&](const Values& v) { return product(a, v); }));
}

TEST_CASE("angles of rotary pairs are scaled as linear and llama3 say") {
    const Rope plain{.batch = 1, .seq = 1, .heads = 1, .dim = 128, .theta = 500000};
    Rope linear = plain, llama3 = plain;
    linear.factor = 2.5;
    llama3.factor = 8, llama3.low_freq_factor = 1, llama3.high_freq_factor = 4, llama3.original_positions = 8192;
    // Llama 3.1's numbers, by the branches over wavelengths that its formula is written in.
    for (const auto& [pair, angle] : {std::pair<i64, double>{0, 1.0},
                                      {20, 0.016560440080994446},
                                      {28, 0.0032114459947525913},
                                      {30, 0.0013718935677611381},
                                      {36, 7.78465527393245e-05},
                                      {40, 3.428102195952591e-05},
                                      {63, 3.068925988914511e-07}}) {
        INFO("pair " << pair);
        CHECK(turn(llama3, pair) == Approx(angle).epsilon(1e-13));
        CHECK(turn(plain, pair) == Approx(std::pow(500000.0, -2.0 * static_cast<double>(pair) / 128)).epsilon(1e-13));
        CHECK(turn(linear, pair) == Approx(turn(plain, pair) / 2.5).epsilon(1e-15));
    }
}

TEST_CASE("reference: gradients of embedding, rope and cross entropy") {
    Context c;
    const std::vector<std::int32_t> tokens{3, 1, 3, 9, 0};
    const Embedding e{.tokens = 5, .start = 1, .rows = 4, .cols = 3};
    const Values table = draw_values(12, 17), dy = draw_values(15, 18);
    Values dtable(12);
    ref.embedding_grad(c, e, tokens.data(), dy.data(), dtable.data());
    check_close(dtable, numeric(table, dy, [&](const Values& v) {
                    Values y(15);
                    ref.embedding(c, e, tokens.data(), v.data(), y.data());
                    return y;
                }));

    Rope r{.batch = 2, .seq = 3, .heads = 2, .dim = 4, .start = 7, .theta = 10000};
    const Values x = draw_values(48, 19), d = draw_values(48, 20);
    const auto rope = [&](const Values& v) {
        Values y(48);
        ref.rope(c, r, v.data(), nullptr, y.data());
        return y;
    };
    const Values expected = numeric(x, d, rope);
    r.inverse = true;
    check_close(rope(d), expected);

    const std::vector<std::int32_t> targets{2, -1, 0, 6};
    const Values logits = draw_values(28, 21, -3, 3);
    Values loss(1), count(1), dlogits(28);
    const auto cross_entropy = [&](const Values& v) {
        ref.cross_entropy(c, v.data(), targets.data(), {}, loss.data(), count.data(), dlogits.data(), 4, 7, -1);
        return loss;
    };
    cross_entropy(logits);
    const Values analytic = dlogits;
    CHECK(count[0] == 3);
    check_close(analytic, numeric(logits, {1.0}, cross_entropy));
    const std::vector<std::int32_t> wrong{2, -1, 7, 6};
    ref.cross_entropy(c, logits.data(), wrong.data(), {}, loss.data(), count.data(), {}, 4, 7, -1);
    CHECK(std::isnan(loss[0]));
}

TEST_CASE("reference: adamw by hand") {
    Context c;
    Values p{1.0}, m{0.0}, v{0.0};
    const Values g{2.0}, lr{0.1}, scale{0.5};
    const AdamW s{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.1};
    const std::uint8_t skip = 0;
    const Values one{1.0}, two{2.0};
    ref.adamw(c, s, p.data(), g.data(), m.data(), v.data(), lr.data(), scale.data(), one.data(), &skip, 1);
    CHECK(p[0] == 1.0);
    // A constant gradient gives mhat = vhat = 1 at every step: each moves by lr and decays by lr * decay.
    ref.adamw(c, s, p.data(), g.data(), m.data(), v.data(), lr.data(), scale.data(), one.data(), nullptr, 1);
    CHECK(p[0] == Approx(1.0 * 0.99 - 0.1).epsilon(1e-7));
    ref.adamw(c, s, p.data(), g.data(), m.data(), v.data(), lr.data(), scale.data(), two.data(), nullptr, 1);
    CHECK(p[0] == Approx((1.0 * 0.99 - 0.1) * 0.99 - 0.1).epsilon(1e-7));
}

TEST_CASE("reference: random numbers do not depend on the shard") {
    Context c;
    const std::uint32_t seed = 1234;
    const std::vector<i64> global{6, 10}, local{3, 7}, offset{2, 3};
    for (const Draw kind : {Draw::normal, Draw::uniform}) {
        std::vector<float> whole(60), part(21);
        ref.random(c, whole.data(), {global}, kind, 2.0, 5, &seed);
        ref.random(c, part.data(), {local, global, offset}, kind, 2.0, 5, &seed);
        for (i64 i = 0; i < 3; ++i) {
            for (i64 j = 0; j < 7; ++j) CHECK(part[i * 7 + j] == whole[(i + 2) * 10 + j + 3]);
        }
    }
    std::vector<float> many(40000);
    const std::vector<i64> shape{40000};
    ref.random(c, many.data(), {shape}, Draw::normal, 3.0, 0, &seed);
    double sum = 0, square = 0;
    for (float x : many) sum += x, square += x * x;
    CHECK(std::fabs(sum / 40000) < 0.06);
    CHECK(std::sqrt(square / 40000) == Approx(3.0).epsilon(0.02));
}
