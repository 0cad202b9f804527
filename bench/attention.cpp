// Attention over packed documents against the plain causal triangle, on this processor: both passes, f32, 6 heads
// of 64.
//
//   bench_attention [TOKENS [THREADS [ROUNDS]]]
//   bench_attention TOKENS THREADS serve
//
// Documents have lengths like the verses of a Bible: 142 tokens in the mean, a deviation of 58. A round is the triangle
// and then the documents; medians of the rounds count. `serve` prints the lengths, then for each line that it reads the
// seconds of the forward pass and of the gradient over the documents: for bench/attention.py.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace orrery::kernels;

namespace {

using i64 = std::int64_t;
using Numbers = std::vector<float>;

std::vector<i64> lengths_of(i64 tokens, std::mt19937& engine) {
    std::normal_distribution<double> draw(142, 58);
    std::vector<i64> lengths;
    for (i64 left = tokens; left > 0; left -= lengths.back())
        lengths.push_back(std::min(left, std::max<i64>(11, std::llround(draw(engine)))));
    return lengths;
}

double median(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

struct Passes {
    double forward = 0, gradient = 0;
};

class Row {
public:
    Row(i64 tokens, int threads) : context_(threads) {
        s_.batch = 1, s_.queries = s_.keys = tokens, s_.heads = s_.groups = 6, s_.head_dim = 64;
        s_.scale = 0.125;
        s_.causal = true;
        std::mt19937 engine(31);
        lengths = lengths_of(tokens, engine);
        std::uniform_real_distribution<float> draw(-1, 1);
        const size_t n = static_cast<size_t>(tokens * s_.heads * s_.head_dim);
        for (Numbers* x : {&q_, &k_, &v_, &d_o_}) {
            x->resize(n);
            for (float& e : *x) e = draw(engine);
        }
        for (Numbers* x : {&o_, &dq_, &dk_, &dv_}) x->resize(n);
        lse_.resize(static_cast<size_t>(tokens * s_.heads));
        for (size_t d = 0; d < lengths.size(); ++d) {
            for (i64 i = 0; i < lengths[d]; ++i) {
                documents_.push_back(static_cast<std::int32_t>(d));
                positions_.push_back(static_cast<std::int32_t>(i));
            }
        }
    }

    Passes seconds(bool documents) {
        const AttentionIndex at{documents_.data(), positions_.data(), documents_.data(), positions_.data()};
        const Kernels& table = cpu::table();
        s_.indexed = documents;
        const auto time = [](auto run) {
            const auto began = std::chrono::steady_clock::now();
            run();
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        };
        Passes took;
        took.forward =
            time([&] { table.attention(context_, s_, q_.data(), k_.data(), v_.data(), at, o_.data(), lse_.data()); });
        took.gradient = time([&] {
            table.attention_grad(context_, s_, q_.data(), k_.data(), v_.data(), o_.data(), lse_.data(), d_o_.data(), at,
                                 {}, dq_.data(), dk_.data(), dv_.data());
        });
        return took;
    }

    std::vector<i64> lengths;

private:
    Context context_;
    Attention s_;
    Numbers q_, k_, v_, d_o_, o_, lse_, dq_, dk_, dv_;
    std::vector<std::int32_t> documents_, positions_;
};

void serve(Row& row) {
    fmt::print("{}\n", fmt::join(row.lengths, " "));
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        const Passes took = row.seconds(true);
        fmt::print("{} {}\n", took.forward, took.gradient);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const i64 tokens = argc > 1 ? std::stol(argv[1]) : 8192;
    const int threads = argc > 2 ? std::stoi(argv[2]) : 2;
    Row row(tokens, threads);
    if (argc > 3 && std::string(argv[3]) == "serve") {
        serve(row);
        return 0;
    }
    const int rounds = argc > 3 ? std::stoi(argv[3]) : 7;
    row.seconds(true);
    std::vector<double> took[2][2];
    for (int round = 0; round < rounds; ++round) {
        for (const bool documents : {false, true}) {
            const Passes p = row.seconds(documents);
            took[documents][0].push_back(p.forward);
            took[documents][1].push_back(p.gradient);
        }
    }
    fmt::print("{} tokens, {} documents, threads {}, medians of {} rounds\n{:<10}{:>12}{:>14}{:>8}\n", tokens,
               row.lengths.size(), threads, rounds, "", "triangle ms", "documents ms", "ratio");
    const auto line = [](const char* name, double triangle, double documents) {
        fmt::print("{:<10}{:>12.2f}{:>14.2f}{:>8.3f}\n", name, 1e3 * triangle, 1e3 * documents, documents / triangle);
    };
    const double forward[] = {median(took[0][0]), median(took[1][0])};
    const double gradient[] = {median(took[0][1]), median(took[1][1])};
    line("forward", forward[0], forward[1]);
    line("gradient", gradient[0], gradient[1]);
    line("both", forward[0] + gradient[0], forward[1] + gradient[1]);
}
