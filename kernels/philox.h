// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

#include "kernels/types.h"

namespace orrery::kernels {

struct Philox {
    std::uint32_t word[4];
};

/// The four words of one counter under one key.
ORRERY_HOST_DEVICE Philox philox(Philox counter, std::uint32_t key0, std::uint32_t key1) {
    std::uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p = std::uint64_t{0xD2511F53u} * a;
        const std::uint64_t q = std::uint64_t{0xCD9E8D57u} * c;
        a = static_cast<std::uint32_t>(q >> 32) ^ b ^ key0;
        b = static_cast<std::uint32_t>(q);
        c = static_cast<std::uint32_t>(p >> 32) ^ d ^ key1;
        d = static_cast<std::uint32_t>(p);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

/// The words of the global elements 4*block .. 4*block+3 of the value with this `stream`.
ORRERY_HOST_DEVICE Philox draw(std::uint64_t block, std::uint64_t stream, std::uint32_t seed) {
    return philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                  seed, 0);
}

/// Maps a word to [0, 1) with 24 bits: exact in f32.
ORRERY_HOST_DEVICE float unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Maps a word to (0, 1], for logarithms.
ORRERY_HOST_DEVICE float open_unit(std::uint32_t word) { return static_cast<float>((word >> 8) + 1) * 0x1p-24f; }

/// Dropout drops an element whose word is below this; exact for p in [0, 1).
ORRERY_HOST_DEVICE std::uint32_t drop_below(double p) {
    const double scaled = p * 4294967296.0 + 0.5;
    return scaled >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(scaled);
}

}  // namespace orrery::kernels
