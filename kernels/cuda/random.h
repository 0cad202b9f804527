// Random values and dropout: element i of a value draws word i % 4 of Philox block i / 4, wherever it is computed.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"
#include "kernels/philox.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// Converts local to global element indices.
struct Places {
    i64 local[max_dims] = {}, global[max_dims] = {}, offset[max_dims] = {};
    int dims = 0;  ///< 0: they are the same
    i64 n = 1;
    const std::int32_t* places = nullptr;  ///< as in Region

    explicit Places(const Region& at) : n(count_of(at.local)), places(at.places) {
        if (at.global.empty()) return;
        for (size_t d = 0; d < at.local.size(); ++d) {
            local[d] = at.local[d];
            global[d] = at.global[d];
            offset[d] = at.offset[d];
        }
        dims = static_cast<int>(at.local.size());
    }
    ORRERY_DEVICE i64 global_of(i64 i) const {
        if (dims == 0) return i;
        i64 index = 0, stride = 1;
        for (int d = dims - 1; d >= 0; --d) {
            index += (d == 1 && places ? places[i] : i % local[d] + offset[d]) * stride;
            i /= local[d];
            stride *= global[d];
        }
        return index;
    }
};

/// The words of a run of elements; adjacent elements share a draw.
struct Words8 {
    i64 block = -1;
    Philox words{};
    ORRERY_DEVICE const Philox& at(i64 global, std::uint64_t stream, std::uint32_t seed) {
        if (global >> 2 != block) {
            block = global >> 2;
            words = draw(static_cast<std::uint64_t>(block), stream, seed);
        }
        return words;
    }
};

ORRERY_DEVICE std::uint32_t word_of(const Philox& words, i64 lane) {
    const std::uint32_t low = (lane & 1) != 0 ? words.word[1] : words.word[0];
    const std::uint32_t high = (lane & 1) != 0 ? words.word[3] : words.word[2];
    return (lane & 2) != 0 ? high : low;
}

/// Box and Muller: words 0, 1 make elements 0, 1 and words 2, 3 make elements 2, 3.
ORRERY_DEVICE float normal_of(const Philox& words, i64 lane) {
    const bool second = (lane & 2) != 0;
    const float radius = sqrtf(-2.0f * logf(open_unit(second ? words.word[2] : words.word[0])));
    const float angle = 6.283185307179586f * unit(second ? words.word[3] : words.word[1]);
    return radius * ((lane & 1) != 0 ? sinf(angle) : cosf(angle));
}

struct Random {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    AnyOut y;
    Places at;
    Draw kind;
    float scale;
    std::uint64_t stream;
    const std::uint32_t* seed;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = (b.index() * threads + b.thread()) * run; i < at.n; i += b.blocks() * threads * run) {
            Words8 words;
            for (int l = 0; l < run && i + l < at.n; ++l) {
                const i64 g = at.global_of(i + l);
                const Philox& w = words.at(g, stream, *seed);
                const float v = kind == Draw::normal ? normal_of(w, g & 3) : 2.0f * unit(word_of(w, g & 3)) - 1.0f;
                y.put(i + l, scale * v);
            }
        }
    }
};

struct Dropout {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    AnyIn x;
    AnyOut y;
    Places at;
    std::uint32_t below;
    float by;
    std::uint64_t stream;
    const std::uint32_t* seed;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = (b.index() * threads + b.thread()) * run; i < at.n; i += b.blocks() * threads * run) {
            Words8 words;
            float v[run];
            x.load(i, at.n - i, v);
#pragma unroll
            for (int l = 0; l < run; ++l) {
                const i64 g = at.global_of(i + l);
                v[l] = word_of(words.at(g, stream, *seed), g & 3) < below ? 0.0f : v[l] * by;
            }
            y.store(i, at.n - i, v);
        }
    }
};

void random(kernels::Context& context, Out y, Region at, Draw kind, double scale, std::uint64_t stream,
            const std::uint32_t* seed) {
    Call& call = call_of(context);
    const Random body{AnyOut(y, false), Places(at), kind, static_cast<float>(scale), stream, seed};
    launch(call, blocks_for(call, body.at.n, Random::threads * run), body);
}

void dropout(kernels::Context& context, In x, Out y, Region at, double p, std::uint64_t stream,
             const std::uint32_t* seed) {
    Call& call = call_of(context);
    const Dropout body{AnyIn(x, aligned(x.data)),
                       AnyOut(y, aligned(y.data)),
                       Places(at),
                       drop_below(p),
                       static_cast<float>(1 / (1 - p)),
                       stream,
                       seed};
    launch(call, blocks_for(call, body.at.n, Dropout::threads * run), body);
}

}  // namespace

void add_random(Kernels& k) {
    k.random = random;
    k.dropout = dropout;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
