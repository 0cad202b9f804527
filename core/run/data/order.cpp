// Implements the default order of a source; DataOrder is declared in orrery/data.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orrery/data.h"

namespace orrery {
namespace {

constexpr int64_t block_samples = 16;  ///< samples per held-out block: many, so that few of them are next to training
                                       ///< samples

uint64_t mix(uint64_t x) {  // hashes a number with splitmix64 (Steele, Lea, Flood 2014)
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/// Permutes [0, n) by a key: a four-round Feistel network over the next even power of two, repeated until the result is
/// below n (Black and Rogaway 2002). O(1) memory, at most 4 repetitions on average.
int64_t permute(int64_t index, int64_t n, uint64_t key) {
    int half = 1;
    while ((int64_t{1} << (2 * half)) < n) ++half;
    const uint64_t mask = (uint64_t{1} << half) - 1;
    uint64_t x = static_cast<uint64_t>(index);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; ++round) {
            const uint64_t next = left ^ (mix(key ^ (round << 56) ^ right) & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= static_cast<uint64_t>(n));
    return static_cast<int64_t>(x);
}

class Permuted final : public DataOrder {
public:
    Permuted(int64_t samples, double held_out, uint64_t seed) : all_(samples), seed_(seed) {
        if (held_out > 0) every_ = every(held_out);
    }

    static int64_t every(double held_out) { return std::max<int64_t>(2, std::llround(1 / held_out)); }

    int64_t samples(Split split) const override {
        if (every_ == 0) return split == Split::train ? all_ : 0;
        const int64_t blocks = all_ / block_samples;
        const int64_t held_out = blocks / every_ * block_samples;
        return split == Split::validation ? held_out : all_ - held_out;
    }

    int64_t position(Split split, int64_t index) const override {
        const int64_t n = samples(split);
        if (split == Split::validation) {
            const int64_t i = index % n;
            return (i / block_samples + 1) * every_ * block_samples - block_samples + i % block_samples;
        }
        const int64_t i = permute(index % n, n, mix(seed_ ^ mix(static_cast<uint64_t>(index / n))));
        if (every_ == 0) return i;
        const int64_t run = (every_ - 1) * block_samples;
        const int64_t held_out = std::min(i / run, (all_ - n) / block_samples);
        return i + held_out * block_samples;
    }

private:
    int64_t all_;
    int64_t every_ = 0;  ///< one block in so many is held out; 0: none
    uint64_t seed_;
};

}  // namespace

std::unique_ptr<DataOrder> permuted_order(const DataSource& source, double held_out, uint64_t seed,
                                          const Origin& asked) {
    return permuted_order(source, source.samples(), "samples", held_out, seed, asked);
}

std::unique_ptr<DataOrder> permuted_order(const DataSource& source, int64_t count, std::string_view kind,
                                          double held_out, uint64_t seed, const Origin& asked) {
    const int64_t need = held_out > 0 ? block_samples * Permuted::every(held_out) : 1;
    if (count < need)
        throw Error(asked, held_out > 0
                               ? fmt::format("{} has {} {}; data.validation = {} needs at least {}\n"
                                             "  use more data, a shorter sequence (for text), or data.validation = 0",
                                             source.place(), count, kind, held_out, need)
                               : fmt::format("{} has no {}", source.place(), kind));
    return std::make_unique<Permuted>(count, held_out, seed);
}

}  // namespace orrery
