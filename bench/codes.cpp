// Codes of codecs on one thread of this processor, for 64 MiB of f32, against a copy of the same bytes.
//
//   bench_codes [ROUNDS]
//
// A round is the copy and then each code; medians of the rounds count. top_k is decoded by scatter_add.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace orrery::kernels;

namespace {

using i64 = std::int64_t;
constexpr i64 n = i64{16} << 20, top_block = 4096;

struct Measured {
    std::string name;
    std::function<void()> run;
    std::vector<double> seconds = {};

    double median() {
        std::sort(seconds.begin(), seconds.end());
        return seconds[seconds.size() / 2];
    }
};

struct Operands {
    std::vector<float> x = std::vector<float>(n), y = x, values = x;
    std::vector<std::int8_t> q = std::vector<std::int8_t>(n);
    std::vector<std::uint8_t> packed = std::vector<std::uint8_t>(n / 2);
    std::vector<float> scales = std::vector<float>(n / 256);
    std::vector<std::int32_t> ids = std::vector<std::int32_t>(n);
};

void add_code(std::vector<Measured>& all, Context& c, Operands& t, const std::string& name, Code code, int bits) {
    const Kernels& k = cpu::table();
    const bool sign = code == Code::sign;
    const Blocks s{1, n, sign ? 2048 : 256};
    const Out scale(t.scales.data(), sign ? Type::f32 : Type::bf16);
    all.push_back({name + " encode", [=, &k, &c, &t] {
                       k.quantize(c, s, code, !sign, t.x.data(), t.q.data(), scale);
                       if (bits < 8) k.pack(c, bits, t.q.data(), t.packed.data(), 1, n);
                   }});
    all.push_back({name + " decode", [=, &k, &c, &t] {
                       if (bits < 8) k.unpack(c, bits, t.packed.data(), t.q.data(), 1, n);
                       k.dequantize(c, s, code, t.q.data(), scale, t.y.data());
                   }});
}

void add_top(std::vector<Measured>& all, Context& c, Operands& t, i64 chosen) {
    const Kernels& k = cpu::table();
    const std::string name = fmt::format("top_k {} of {}", chosen, top_block);
    all.push_back({name + " encode", [=, &k, &c, &t] {
                       k.block_top_k(c, {1, n, top_block}, chosen, t.x.data(), t.values.data(), t.ids.data());
                   }});
    all.push_back({name + " decode", [=, &k, &c, &t] {
                       const Picks s{{n / top_block, top_block, 1}, chosen};
                       k.scatter_add(c, s, t.values.data(), t.ids.data(), t.y.data());
                   }});
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::stoi(argv[1]) : 11;
    Operands t;
    std::mt19937 engine(1);
    std::normal_distribution<float> draw;
    for (float& x : t.x) x = draw(engine);
    Context c(1);
    std::vector<Measured> all{{"copy", [&] { std::memcpy(t.y.data(), t.x.data(), n * sizeof(float)); }}};
    add_code(all, c, t, "int8", Code::i8, 8);
    add_code(all, c, t, "int4", Code::i4, 4);
    add_code(all, c, t, "2 bits", Code::i2, 2);
    add_code(all, c, t, "sign", Code::sign, 1);
    add_code(all, c, t, "f8e4m3", Code::f8e4m3, 8);
    add_code(all, c, t, "f8e5m2", Code::f8e5m2, 8);
    add_top(all, c, t, top_block / 100);
    add_top(all, c, t, top_block / 10);
    for (int round = 0; round < rounds; ++round) {
        for (Measured& one : all) {
            const auto begin = std::chrono::steady_clock::now();
            one.run();
            one.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
    }
    const double copy = all[0].median();
    fmt::print("{:<24} {:>8} {:>16}\n", "64 MiB of f32", "ms", "rate of a copy");
    for (Measured& one : all)
        fmt::print("{:<24} {:>8.2f} {:>16.2f}\n", one.name, 1e3 * one.median(), copy / one.median());
}
