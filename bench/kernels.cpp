// Times each CPU kernel at the sizes of a small GPT (4096 tokens, 384 wide) and of GPT-2's head.
//
//   bench_kernels [threads] [f32|bf16] [name]
//
// Products are set against the rate of one large oneDNN product, the rest against the rate of copying memory, both
// measured beside each kernel so that a busy machine slows both. Best of several runs.
#include <dnnl.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace orrery::kernels;
using i64 = std::int64_t;

namespace {

/// One thread is timed by its own clock, which stands still while others have the processor.
double now(int threads) {
    timespec t{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// An operand of random floats, made in the type of the run.
struct Operand {
    std::vector<unsigned char> bytes;
    Type type;

    Operand(Type t, i64 n, double scale = 1) : bytes(static_cast<size_t>(n * size_of(t))), type(t) {
        Context c;
        std::vector<float> x(static_cast<size_t>(n));
        const std::vector<i64> shape{n};
        const std::uint32_t seed = static_cast<std::uint32_t>(n);
        cpu::table().random(c, x.data(), {shape}, Draw::uniform, scale, 1, &seed);
        cpu::table().cast(c, x.data(), out(), n);
    }
    In in() const { return {bytes.data(), type}; }
    Out out() { return {bytes.data(), type}; }
};

class Bench {
public:
    Bench(int threads, std::string wanted)
        : context_(threads), wanted_(std::move(wanted)), from_(1 << 24), to_(1 << 24) {
        std::printf("%-34s %10s %12s %10s\n", "kernel", "ms", "rate", "of limit");
    }

    /// flops > 0: a product, against oneDNN; otherwise `bytes` against a copy.
    void line(const std::string& name, double flops, double bytes, const std::function<void(Context&)>& run) {
        if (name.find(wanted_) == std::string::npos) return;
        run(context_);
        double best = 1e30, limit = 1e30;
        for (int i = 0; i < 7; ++i) {
            best = std::min(best, seconds([&] { run(context_); }));
            limit = std::min(limit, flops > 0 ? seconds([&] { product(); }) : seconds([&] { copy(); }));
        }
        const double rate = (flops > 0 ? flops : bytes) / best;
        const double top = (flops > 0 ? 2.0 * side * side * side : 8.0 * static_cast<double>(from_.size())) / limit;
        std::printf("%-34s %10.3f %8.1f %s %8.0f %%\n", name.c_str(), best * 1e3, rate / 1e9,
                    flops > 0 ? "GF/s" : "GB/s", 100 * rate / top);
        std::fflush(stdout);
    }

private:
    static constexpr i64 side = 1024;

    template <class F>
    double seconds(F f) const {
        const double start = now(context_.threads());
        f();
        return now(context_.threads()) - start;
    }
    void product() {
        omp_set_num_threads(context_.threads());
        dnnl_sgemm('N', 'N', side, side, side, 1, from_.data(), side, from_.data(), side, 0, to_.data(), side);
        omp_set_num_threads(1);
    }
    void copy() { cpu::table().scale(context_, from_.data(), to_.data(), static_cast<i64>(from_.size()), 1); }

    Context context_;
    std::string wanted_;
    std::vector<float> from_, to_;
};

void products(Bench& bench, Type type) {
    struct Size {
        const char* name;
        i64 m, n, k;
        bool trans_a, trans_b, bias, wide;
    };
    for (const Size& z : {Size{"up", 4096, 1536, 384, false, false, true, false},
                          Size{"down", 4096, 384, 1536, false, false, true, false},
                          Size{"up dx", 4096, 384, 1536, false, true, false, false},
                          Size{"down dx", 4096, 1536, 384, false, true, false, false},
                          Size{"up dw", 384, 1536, 4096, true, false, false, true},
                          Size{"down dw", 1536, 384, 4096, true, false, false, true},
                          Size{"gpt2 up", 1024, 3072, 768, false, false, true, false},
                          Size{"gpt2 head", 1024, 50257, 768, false, true, false, false},
                          Size{"gpt2 head dx", 1024, 768, 50257, false, false, false, false},
                          Size{"gpt2 head dw", 50257, 768, 1024, true, false, false, true}}) {
        Operand a(type, z.m * z.k), b(type, z.k * z.n), bias(type, z.n), y(z.wide ? Type::f32 : type, z.m * z.n);
        const Matmul s{.m = z.m, .n = z.n, .k = z.k, .trans_a = z.trans_a, .trans_b = z.trans_b};
        bench.line(std::string("matmul ") + z.name, 2.0 * z.m * z.n * z.k, 0,
                   [&](Context& c) { cpu::table().matmul(c, s, a.in(), b.in(), z.bias ? bias.in() : In{}, y.out()); });
    }
}

void attentions(Bench& bench, Type type) {
    for (const auto& [name, s] : {std::pair{"small gpt", Attention{16, 256, 256, 6, 6, 64, 0.125, true, 0}},
                                  std::pair{"gpt2", Attention{2, 512, 512, 12, 12, 64, 0.125, true, 0}},
                                  std::pair{"2048 tokens", Attention{1, 2048, 2048, 8, 2, 64, 0.125, true, 0}}}) {
        const i64 nq = s.batch * s.queries * s.heads * s.head_dim, nk = s.batch * s.keys * s.groups * s.head_dim;
        Operand q(type, nq), k(type, nk), v(type, nk), o(type, nq), d_o(type, nq), dq(type, nq), dk(type, nk),
            dv(type, nk);
        Operand lse(Type::f32, s.batch * s.heads * s.queries);
        // Half of the scores are masked; two products forward, five backward.
        const double flops = 2.0 * s.batch * s.heads * s.queries * s.keys * s.head_dim / 2;
        bench.line(std::string("attention ") + name, 2 * flops, 0, [&, &z = s](Context& c) {
            cpu::table().attention(c, z, q.in(), k.in(), v.in(), o.out(), lse.out());
        });
        bench.line(std::string("attention_grad ") + name, 5 * flops, 0, [&, &z = s](Context& c) {
            cpu::table().attention_grad(c, z, q.in(), k.in(), v.in(), o.in(), lse.in(), d_o.in(), dq.out(), dk.out(),
                                        dv.out());
        });
    }
}

void rows(Bench& bench, Type type) {
    const i64 tokens = 4096, cols = 384, n = tokens * cols;
    const double w = static_cast<double>(size_of(type)), nb = static_cast<double>(n) * w;
    const Kernels& k = cpu::table();
    Operand x(type, n), y(type, n), dy(type, n), gain(type, cols), bias(type, cols), mean(Type::f32, tokens);
    Operand rstd(Type::f32, tokens), dgain(Type::f32, cols), dbias(Type::f32, cols), r(type, n), sum(type, n);
    for (const bool adds : {false, true}) {  // a residual to x, and to dx
        const std::string with = adds ? " + residual" : "";
        const In more = adds ? r.in() : In{};
        const Out both = adds ? sum.out() : Out{};
        bench.line("layernorm" + with, 0, (adds ? 4 : 2) * nb, [&](Context& c) {
            k.layernorm(c, x.in(), gain.in(), bias.in(), more, y.out(), mean.out(), rstd.out(), both, tokens, cols,
                        1e-5);
        });
        bench.line("layernorm_grad" + with, 0, (adds ? 4 : 3) * nb, [&](Context& c) {
            k.layernorm_grad(c, x.in(), gain.in(), mean.in(), rstd.in(), dy.in(), more, y.out(), dgain.out(),
                             dbias.out(), tokens, cols, false);
        });
        bench.line("rmsnorm" + with, 0, (adds ? 4 : 2) * nb, [&](Context& c) {
            k.rmsnorm(c, x.in(), gain.in(), more, y.out(), rstd.out(), both, tokens, cols, 1e-5);
        });
        bench.line("rmsnorm_grad" + with, 0, (adds ? 4 : 3) * nb, [&](Context& c) {
            k.rmsnorm_grad(c, x.in(), gain.in(), rstd.in(), dy.in(), more, y.out(), dgain.out(), tokens, cols, false);
        });
    }
    const std::vector<i64> shape{tokens, cols}, row{cols};
    bench.line("add", 0, 3 * nb, [&](Context& c) { k.binary(c, Binary::add, x.in(), shape, dy.in(), shape, y.out()); });
    bench.line("add row", 0, 2 * nb,
               [&](Context& c) { k.binary(c, Binary::add, x.in(), shape, bias.in(), row, y.out()); });
    bench.line("sum over rows", 0, nb,
               [&](Context& c) { k.reduce(c, Reduce::sum, x.in(), shape, 1, dbias.out(), false); });
    bench.line("sumsq", 0, nb, [&](Context& c) { k.sumsq(c, x.in(), dgain.out(), n); });
    const std::vector<i64> flat{n};
    const std::uint32_t seed = 3;
    bench.line("dropout", 0, 2 * nb, [&](Context& c) { k.dropout(c, x.in(), y.out(), {flat}, 0.1, 7, &seed); });
    const std::vector<i64> heads{16, 256, 6, 64};
    const std::vector<int> perm{0, 2, 1, 3};
    bench.line("transpose heads", 0, 2 * nb, [&](Context& c) { k.transpose(c, x.in(), heads, perm, y.out()); });
    bench.line("slice", 0, 2 * nb / 3, [&](Context& c) { k.slice(c, x.in(), shape, 1, 128, 128, y.out()); });
    const Rope rope{.batch = 16, .seq = 256, .heads = 6, .dim = 64, .theta = 10000};
    bench.line("rope", 0, 2 * nb, [&](Context& c) { k.rope(c, rope, x.in(), y.out()); });
}

void elementwise(Bench& bench, Type type) {
    const i64 n = 4096 * 1536;
    const double nb = static_cast<double>(n * size_of(type));
    const Kernels& k = cpu::table();
    Operand x(type, n, 3), dy(type, n), y(type, n), wide(Type::f32, n);
    for (const auto& [name, op] : {std::pair{"gelu tanh", Unary::gelu_tanh},
                                   {"gelu erf", Unary::gelu_erf},
                                   {"silu", Unary::silu},
                                   {"exp", Unary::exp},
                                   {"tanh", Unary::tanh}}) {
        bench.line(name, 0, 2 * nb, [&, &f = op](Context& c) { k.unary(c, f, x.in(), y.out(), n); });
    }
    bench.line("gelu_grad tanh", 0, 3 * nb,
               [&](Context& c) { k.unary_grad(c, UnaryGrad::gelu_tanh, x.in(), dy.in(), y.out(), n); });
    bench.line("swiglu", 0, 3 * nb, [&](Context& c) { k.swiglu(c, x.in(), dy.in(), y.out(), n); });
    bench.line("cast to f32", 0, nb + 4.0 * n, [&](Context& c) { k.cast(c, x.in(), wide.out(), n); });
    Operand m(Type::f32, n), v(Type::f32, n);
    k.unary(*std::make_unique<Context>(), Unary::abs, v.in(), v.out(), n);
    const float lr = 1e-3f, scale = 1, step = 3;
    bench.line("adamw", 0, nb + 24.0 * n, [&](Context& c) {
        k.adamw(c, {}, wide.out(), x.in(), m.out(), v.out(), &lr, &scale, &step, nullptr, n);
    });
}

void tokens(Bench& bench, Type type) {
    const Kernels& k = cpu::table();
    for (const auto& [name, n, vocab] : {std::tuple{"bytes", i64{4096}, i64{256}}, {"gpt2", i64{1024}, i64{50257}}}) {
        Operand logits(type, n * vocab, 8), table(type, vocab * 384), y(type, n * 384), dtable(Type::f32, vocab * 384);
        std::vector<std::int32_t> ids(static_cast<size_t>(n));
        for (size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<size_t>(vocab));
        float one = 1, loss = 0, count = 0;
        const double nb = static_cast<double>(n * vocab * size_of(type)),
                     eb = static_cast<double>(n * 384 * size_of(type));
        bench.line(std::string("cross_entropy ") + name, 0, 2 * nb, [&, &rows = n, &cols = vocab](Context& c) {
            k.cross_entropy(c, logits.in(), ids.data(), {&one}, {&loss}, {&count}, logits.out(), rows, cols, -1);
        });
        const Embedding e{.tokens = n, .rows = vocab, .cols = 384};
        bench.line(std::string("embedding ") + name, 0, 2 * eb,
                   [&](Context& c) { k.embedding(c, e, ids.data(), table.in(), y.out()); });
        bench.line(std::string("embedding_grad ") + name, 0, eb + 4.0 * static_cast<double>(vocab) * 384,
                   [&](Context& c) { k.embedding_grad(c, e, ids.data(), y.in(), dtable.out()); });
    }
}

/// Routing of 4096 tokens among 64 experts, rows of 384 by index, and a choice among a vocabulary.
void indices(Bench& bench, Type type) {
    const Kernels& k = cpu::table();
    const i64 n = 4096, cols = 384, experts = 64, chosen = 8, vocab = 50257;
    const double w = static_cast<double>(size_of(type));
    Operand x(type, n * cols), y(type, n * cols), gates(type, n * experts), sums(type, n * experts);
    Operand logits(type, 16 * vocab);
    std::vector<std::int32_t> ids(static_cast<size_t>(n * chosen));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % n);
    const Picks rows{.x = {1, n, cols}, .picks = n, .rows = true};
    const double moved = 2 * static_cast<double>(n * cols) * w, gated = static_cast<double>(n * experts) * w;
    bench.line("gather rows", 0, moved, [&](Context& c) { k.gather(c, rows, x.in(), ids.data(), y.out()); });
    bench.line("scatter_add rows", 0, moved, [&](Context& c) { k.scatter_add(c, rows, x.in(), ids.data(), y.out()); });
    std::vector<std::int32_t> best(ids.size());
    for (std::int32_t& id : ids) id %= experts;
    const Picks elements{.x = {n, experts, 1}, .picks = chosen};
    const double picked = static_cast<double>(n * chosen) * (w + 4);
    bench.line("gather elements", 0, picked + gated,
               [&](Context& c) { k.gather(c, elements, gates.in(), ids.data(), y.out()); });
    bench.line("scatter_add elements", 0, picked + gated,
               [&](Context& c) { k.scatter_add(c, elements, y.in(), ids.data(), sums.out()); });
    bench.line("top_k 8 of 64", 0, picked + gated, [&](Context& c) {
        k.top_k(c, {n, experts, 1}, chosen, gates.in(), y.out(), best.data());
    });
    bench.line("top_k 40 of 50257", 0, 16 * static_cast<double>(vocab) * w, [&](Context& c) {
        k.top_k(c, {16, vocab, 1}, 40, logits.in(), y.out(), best.data());
    });
    bench.line("cumsum rows", 0, 2 * gated, [&](Context& c) {
        k.cumsum(c, {n, experts, 1}, false, false, gates.in(), sums.out());
    });
    bench.line("cumsum columns", 0, 2 * gated, [&](Context& c) {
        k.cumsum(c, {1, n, experts}, false, true, gates.in(), sums.out());
    });
    bench.line("iota", 0, moved / 2, [&](Context& c) { k.iota(c, {1, n, cols}, 0, y.out()); });
    bench.line("one_hot", 0, gated, [&](Context& c) { k.one_hot(c, ids.data(), n, 0, experts, sums.out()); });
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
    const Type type = argc > 2 && std::strcmp(argv[2], "bf16") == 0 ? Type::bf16 : Type::f32;
    std::printf("%d thread(s), %s\n", threads, type == Type::f32 ? "f32" : "bf16");
    Bench bench(threads, argc > 3 ? argv[3] : "");
    products(bench, type);
    attentions(bench, type);
    rows(bench, type);
    elementwise(bench, type);
    tokens(bench, type);
    indices(bench, type);
}
