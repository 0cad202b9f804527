// Random numbers and dropout. Adjacent elements of a run also have adjacent global indices: a row of the last dim, or
// one element if that dim has places.
#include "kernels/cpu/tile.h"
#include "kernels/philox.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// Calls f(local start, global start, n) for runs that cover the local elements begin .. end-1.
template <class F>
ORRERY_INLINE void for_runs(const Region& at, i64 begin, i64 end, F f) {
    if (at.global.empty() || at.local.empty()) return f(begin, begin, end - begin);
    const int last = static_cast<int>(at.local.size()) - 1;
    const bool each = at.places && last == 1;  // the place of each element of the last dim is given
    for (i64 i = begin; i < end;) {
        const i64 col = i % at.local[last];
        i64 global = each ? at.places[i] : col + at.offset[last];
        i64 stride = at.global[last], rest = i / at.local[last];
        for (int d = last - 1; d >= 0; rest /= at.local[d], stride *= at.global[d], --d) {
            global += (d == 1 && at.places ? at.places[rest] : rest % at.local[d] + at.offset[d]) * stride;
        }
        const i64 run = each ? 1 : at.local[last] - col, n = run < end - i ? run : end - i;
        f(i, global, n);
        i += n;
    }
}

/// The words of global elements first .. first+n-1, with `width` counters at once.
ORRERY_INLINE void draw_words(i64 first, i64 n, std::uint64_t stream, std::uint32_t seed, std::uint32_t* words) {
    constexpr int lanes = width;
    const i64 head = first & 3;
    for (i64 block = first >> 2, to = -head; to < n; block += lanes, to += 4 * lanes) {
        Words a, b, c = Words{} + static_cast<std::uint32_t>(stream),
                    d = Words{} + static_cast<std::uint32_t>(stream >> 32);
        for (int l = 0; l < lanes; ++l) {
            a[l] = static_cast<std::uint32_t>(block + l);
            b[l] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(block + l) >> 32);
        }
        std::uint32_t key0 = seed, key1 = 0;
        for (int round = 0; round < 10; ++round) {
            Words p_high, p_low, q_high, q_low;
            multiply_wide(a, 0xD2511F53u, p_high, p_low);
            multiply_wide(c, 0xCD9E8D57u, q_high, q_low);
            a = q_high ^ b ^ key0;
            b = q_low;
            c = p_high ^ d ^ key1;
            d = p_low;
            key0 += 0x9E3779B9u;
            key1 += 0xBB67AE85u;
        }
        if (to >= 0 && to + 4 * lanes <= n) {
            for (int l = 0; l < lanes; ++l) {
                std::uint32_t* w = words + to + 4 * l;
                w[0] = a[l], w[1] = b[l], w[2] = c[l], w[3] = d[l];
            }
            continue;
        }
        for (int l = 0; l < lanes; ++l) {
            const std::uint32_t four[] = {a[l], b[l], c[l], d[l]};
            for (int w = 0; w < 4; ++w) {
                const i64 i = to + 4 * l + w;
                if (i >= 0 && i < n) words[i] = four[w];
            }
        }
    }
}

/// Box and Muller: words 0, 1 of a counter make its elements 0, 1 and words 2, 3 its elements 2, 3.
ORRERY_INLINE void normals(i64 first, i64 n, std::uint64_t stream, std::uint32_t seed, float scale, float* y) {
    for (i64 i = 0; i < n;) {
        const i64 g = first + i;
        const Philox words = draw(static_cast<std::uint64_t>(g) >> 2, stream, seed);
        for (i64 lane = g & 3; lane < 4 && i < n;) {
            const std::uint32_t* pair = words.word + (lane & 2);
            const float radius = scale * __builtin_sqrtf(-2 * __builtin_logf(open_unit(pair[0])));
            const float angle = 6.283185307179586f * unit(pair[1]);
            if ((lane & 1) == 0) {
                y[i++] = radius * __builtin_cosf(angle);
                ++lane;
                if (i == n) break;
            }
            y[i++] = radius * __builtin_sinf(angle);
            ++lane;
        }
    }
}

i64 count(Shape shape) {
    i64 n = 1;
    for (i64 size : shape) n *= size;
    return n;
}

void random(Context& c, Out y, Region at, Draw kind, double scale, std::uint64_t stream, const std::uint32_t* seed) {
    parallel(c.threads(), count(at.local), 4096, 64, [&](i64 begin, i64 end) {
        for_runs(at, begin, end, [&](i64 local, i64 global, i64 n) {
            float* to = y.as<float>() + local;
            if (kind == Draw::normal) return normals(global, n, stream, *seed, static_cast<float>(scale), to);
            std::uint32_t words[tile];
            for (i64 j = 0; j < n; j += tile) {
                const i64 size = n - j < tile ? n - j : tile;
                draw_words(global + j, size, stream, *seed, words);
                const auto s = static_cast<float>(scale);
                for (i64 i = 0; i < size; ++i) to[j + i] = s * (2 * unit(words[i]) - 1);
            }
        });
    });
}

void dropout(Context& c, In x, Out y, Region at, double p, std::uint64_t stream, const std::uint32_t* seed) {
    const std::uint32_t threshold = drop_below(p);
    const auto keep = static_cast<float>(1 / (1 - p));
    parallel(c.threads(), count(at.local), 4096, 64, [&](i64 begin, i64 end) {
        for_runs(at, begin, end, [&](i64 local, i64 global, i64 n) {
            std::uint32_t words[tile];
            float buffers[2][tile];
            for (i64 j = 0; j < n; j += tile) {
                const i64 size = n - j < tile ? n - j : tile;
                draw_words(global + j, size, stream, *seed, words);
                const float* from = fetch(x, local + j, size, buffers[0]);
                float* to = target(y, local + j, buffers[1]);
                for (i64 i = 0; i < size; ++i) to[i] = words[i] < threshold ? 0.0f : from[i] * keep;
                flush(y, local + j, size, to);
            }
        });
    });
}

}  // namespace

void add_random(Kernels& k) {
    k.random = random;
    k.dropout = dropout;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
