// Codes of blocks of a row, their packing, and the largest elements of each block.
#include "kernels/codes.h"

#include <type_traits>

#include "kernels/cpu/rows.h"
#include "kernels/factors.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

typedef std::int8_t Bytes __attribute__((vector_size(width)));

/// The last byte of each.
ORRERY_INLINE void store_bytes(Ints q, std::uint8_t* p) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i low = (__m256i)(q & 0xff);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
#else
    const Bytes bytes = __builtin_convertvector(q, Bytes);
    __builtin_memcpy(p, &bytes, sizeof bytes);
#endif
}
ORRERY_INLINE Ints load_bytes(const std::uint8_t* p) {
    Bytes bytes;
    __builtin_memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, Ints);
}

/// To the nearest, ties to even; a NaN becomes a number with a last byte of 0.
ORRERY_INLINE Ints round(Vec x) {
#if defined(__AVX512F__)
    return (Ints)_mm512_cvtps_epi32(x.v);
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtps_epi32(x.v);
#elif defined(__SSE2__)
    return (Ints)_mm_cvtps_epi32(x.v);
#else
    Ints y;
    for (int i = 0; i < width; ++i) y[i] = x.v[i] == x.v[i] ? static_cast<std::int32_t>(__builtin_rintf(x.v[i])) : 0;
    return y;
#endif
}

/// As to_f8 and from_f8 of kernels/codes.h.
template <int mantissa>
ORRERY_INLINE Ints to_f8s(Vec x) {
    using T = F8<mantissa>;
    const Words bits = (Words)x.v, size = bits & 0x7fffffffu;
    const Words small = (Words)(Vec((Floats)size) + Vec(T::aligned)).v - std::bit_cast<std::uint32_t>(T::aligned);
    const Words large = ((size + ((1u << (T::shift - 1)) - 1) + (size >> T::shift & 1u)) >> T::shift) - T::rebias;
    Words code = size >= T::least_normal ? large : small;
    code = code > T::largest ? Words{} + T::largest : code;
    code = size > 0x7f800000u ? Words{} + 0x7fu : code;
    return (Ints)((bits >> 24 & 0x80u) | code);
}

template <int mantissa>
ORRERY_INLINE Vec from_f8s(Ints q) {
    using T = F8<mantissa>;
    const Words sign = ((Words)q & 0x80u) << 24, rest = (Words)q & 0x7fu;
    const Words small = (Words)(__builtin_convertvector((Ints)rest, Floats) * broadcast(T::unit));
    Words size = rest < (1u << mantissa) ? small : (rest + T::rebias) << T::shift;
    const Words beyond =
        mantissa == 2 ? (rest == 0x7cu ? Words{} + 0x7f800000u : Words{} + 0x7fc00000u) : Words{} + 0x7fc00000u;
    size = rest > T::largest ? beyond : size;
    return (Floats)(sign | size);
}

/// The codes of a vector, as code_of of kernels/codes.h.
template <Code code>
ORRERY_INLINE Ints codes_of(Vec x, Vec scale, Vec inverse) {
    const Ints negative = (Ints)x.v >> 31;
    if constexpr (code == Code::sign) return negative;
    if constexpr (code == Code::i2) return negative ^ ((abs(x) > scale).v & 1);
    if constexpr (code == Code::f8e4m3) return to_f8s<3>(x * inverse);
    if constexpr (code == Code::f8e5m2) return to_f8s<2>(x * inverse);
    return round(x * inverse);
}

template <Code code>
ORRERY_INLINE Vec values_of(Ints q, Vec scale) {
    if constexpr (code == Code::f8e4m3) return from_f8s<3>(q) * scale;
    if constexpr (code == Code::f8e5m2) return from_f8s<2>(q) * scale;
    const Vec whole = __builtin_convertvector(q, Floats);
    if constexpr (code == Code::sign) return (whole + whole + Vec(1.0f)) * scale;
    if constexpr (code == Code::i2) return (whole + Vec(0.5f)) * scale;
    return whole * scale;
}

/// Calls f with the code as a constant.
template <class F>
void visit(Code code, F f) {
    switch (code) {
        case Code::i8: return f.template operator()<Code::i8>();
        case Code::i4: return f.template operator()<Code::i4>();
        case Code::i2: return f.template operator()<Code::i2>();
        case Code::sign: return f.template operator()<Code::sign>();
        case Code::f8e4m3: return f.template operator()<Code::f8e4m3>();
        case Code::f8e5m2: return f.template operator()<Code::f8e5m2>();
    }
}

/// The bits of the largest magnitude of n elements and of `first`: those of a NaN are above all others.
ORRERY_INLINE std::int32_t top_bits(const float* x, i64 n, std::int32_t first) {
    const auto larger = [](Ints a, Ints b) { return a > b ? a : b; };
    Ints a = Ints{} + first, b = a;
    i64 i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
        a = larger(a, (Ints)abs(load(x + i)).v);
        b = larger(b, (Ints)abs(load(x + i + width)).v);
    }
    for (; i < n; i += width) a = larger(a, (Ints)abs(i + width <= n ? load(x + i) : load(x + i, n - i)).v);
    a = larger(a, b);
    std::int32_t top = first;
    for (int lane = 0; lane < width; ++lane) top = a[lane] > top ? a[lane] : top;
    return top;
}

/// Calls f(index of the first, floats, count) for the elements of a block, some at a time.
template <class F>
ORRERY_INLINE void in_tiles(In x, i64 first, i64 size, F f) {
    float buffer[tile];
    for (i64 at = first; at < first + size; at += tile) {
        const i64 n = smaller(tile, first + size - at);
        f(at, fetch(x, at, n, buffer), n);
    }
}

template <Code code>
float block_scale(In x, i64 first, i64 size, bool narrow) {
    if constexpr (code == Code::sign) {
        double sum = 0;
        in_tiles(x, first, size, [&](i64, const float* v, i64 n) {
            sum += static_cast<double>(sum_map(
                n, [](Vec e) { return abs(e); }, v));
        });
        return scale_of(code, static_cast<float>(sum / static_cast<double>(size)), narrow);
    }
    std::int32_t top = 0;
    in_tiles(x, first, size, [&](i64, const float* v, i64 n) { top = top_bits(v, n, top); });
    return scale_of(code, std::bit_cast<float>(top), narrow);
}

template <Code code>
void quantize_blocks(Context& c, const Blocks& s, bool narrow, In x, std::uint8_t* q, Out scale) {
    parallel(c.threads(), s.count(), 1 + grain / (s.block + 1), 1, [&](i64 begin, i64 end) {
        for (i64 b = begin; b < end; ++b) {
            const i64 first = s.first(b), size = s.size(b);
            const float own = block_scale<code>(x, first, size, narrow), inverse = inverse_of(own);
            const Vec scales(own), inverses(inverse);
            in_tiles(x, first, size, [&](i64 at, const float* v, i64 n) {
                i64 i = 0;
                for (; i + width <= n; i += width)
                    store_bytes(codes_of<code>(load(v + i), scales, inverses), q + at + i);
                for (; i < n; ++i) q[at + i] = code_of(code, v[i], own, inverse);
            });
            if (scale.type == Type::f32)
                scale.as<float>()[b] = own;
            else
                scale.as<bf16>()[b] = to_bf16(own);
        }
    });
}

void quantize(Context& c, const Blocks& s, Code code, bool narrow, In x, void* q, Out scale) {
    visit(code,
          [&]<Code constant>() { quantize_blocks<constant>(c, s, narrow, x, static_cast<std::uint8_t*>(q), scale); });
}

template <Code code>
void dequantize_blocks(Context& c, const Blocks& s, const std::uint8_t* q, In scale, Out y) {
    parallel(c.threads(), s.count(), 1 + grain / (s.block + 1), 1, [&](i64 begin, i64 end) {
        float buffer[tile];
        for (i64 b = begin; b < end; ++b) {
            float own;
            own = *fetch(scale, b, 1, &own);
            const Vec scales(own);
            const i64 first = s.first(b), last = first + s.size(b);
            for (i64 at = first; at < last; at += tile) {
                const i64 n = smaller(tile, last - at);
                float* const to = target(y, at, buffer);
                i64 i = 0;
                for (; i + width <= n; i += width) store(values_of<code>(load_bytes(q + at + i), scales), to + i);
                for (; i < n; ++i) to[i] = value_of(code, q[at + i], own);
                flush(y, at, n, to);
            }
        }
    });
}

void dequantize(Context& c, const Blocks& s, Code code, const void* q, In scale, Out y) {
    visit(code,
          [&]<Code constant>() { dequantize_blocks<constant>(c, s, static_cast<const std::uint8_t*>(q), scale, y); });
}

/// Eight codes, one a byte, to `bits` bytes: halves of each pair of fields move together, three times.
template <int bits>
ORRERY_INLINE std::uint64_t joined(std::uint64_t codes) {
    constexpr std::uint64_t ones = 0x0101010101010101u;
    codes &= ones * ((1u << bits) - 1);
    codes = (codes | codes >> (8 - bits)) & 0x00ff00ff00ff00ffu;
    codes = (codes | codes >> (16 - 2 * bits)) & 0x0000ffff0000ffffu;
    return (codes | codes >> (32 - 4 * bits)) & 0xffffffffu;
}

template <int bits>
void pack_row(const std::int8_t* q, std::uint8_t* y, i64 begin, i64 end) {
    i64 i = begin;
    for (; i + 8 <= end; i += 8) {
        std::uint64_t codes;
        __builtin_memcpy(&codes, q + i, 8);
        codes = joined<bits>(codes);
        __builtin_memcpy(y + i * bits / 8, &codes, bits);
    }
    if (i == end) return;
    std::uint64_t codes = 0;
    __builtin_memcpy(&codes, q + i, static_cast<size_t>(end - i));
    codes = joined<bits>(codes);
    __builtin_memcpy(y + i * bits / 8, &codes, static_cast<size_t>(packed_bytes(end - i, bits)));
}

/// The inverse of `joined`, with the sign of each code.
template <int bits>
ORRERY_INLINE constexpr std::uint64_t spread(std::uint64_t codes) {
    constexpr std::uint64_t one = 1, ones = 0x0101010101010101u, tops = ones << (bits - 1);
    codes = (codes | codes << (32 - 4 * bits)) & ((one << 4 * bits) - 1) * 0x0000000100000001u;
    codes = (codes | codes << (16 - 2 * bits)) & ((one << 2 * bits) - 1) * 0x0001000100010001u;
    codes = (codes | codes << (8 - bits)) & ((one << bits) - 1) * ones;
    return (((codes ^ tops) | 0x80 * ones) - tops) ^ 0x80 * ones;
}

/// Eight signs by their bits: faster than to compute them.
struct Signs {
    std::uint64_t of[256] = {};
    constexpr Signs() {
        for (unsigned bits = 0; bits < 256; ++bits) of[bits] = spread<1>(bits);
    }
};
constexpr Signs signs;

template <int bits>
ORRERY_INLINE std::uint64_t eight(std::uint64_t packed) {
    if constexpr (bits == 1) return signs.of[packed];
    return spread<bits>(packed);
}

template <int bits>
void unpack_row(const std::uint8_t* y, std::int8_t* q, i64 begin, i64 end) {
    using Eight =
        std::conditional_t<bits == 4, std::uint32_t, std::conditional_t<bits == 2, std::uint16_t, std::uint8_t>>;
    i64 i = begin;
    for (; i + 8 <= end; i += 8) {
        Eight packed;
        __builtin_memcpy(&packed, y + i * bits / 8, bits);
        const std::uint64_t codes = eight<bits>(packed);
        __builtin_memcpy(q + i, &codes, 8);
    }
    if (i >= end) return;
    Eight rest = 0;
    __builtin_memcpy(&rest, y + i * bits / 8, static_cast<size_t>(packed_bytes(end - i, bits)));
    const std::uint64_t codes = eight<bits>(rest);
    __builtin_memcpy(q + i, &codes, static_cast<size_t>(end - i));
}

/// Calls f(row, begin, end) for parts of rows that begin at whole bytes.
template <class F>
ORRERY_INLINE void parts_of_rows(Context& c, i64 rows, i64 cols, F f) {
    const i64 pieces = (cols + grain - 1) / grain;
    parallel(c.threads(), rows * pieces, 1 + 4 * grain / (cols + 1), 1, [&](i64 begin, i64 end) {
        for (i64 i = begin; i < end; ++i) {
            const i64 at = i % pieces * grain;
            f(i / pieces, at, smaller(cols, at + grain));
        }
    });
}

void pack(Context& c, int bits, const std::int8_t* q, std::uint8_t* y, i64 rows, i64 cols) {
    const i64 bytes = packed_bytes(cols, bits);
    parts_of_rows(c, rows, cols, [&](i64 row, i64 begin, i64 end) {
        const auto* const from = q + row * cols;
        auto* const to = y + row * bytes;
        bits == 4   ? pack_row<4>(from, to, begin, end)
        : bits == 2 ? pack_row<2>(from, to, begin, end)
                    : pack_row<1>(from, to, begin, end);
    });
}

void unpack(Context& c, int bits, const std::uint8_t* y, std::int8_t* q, i64 rows, i64 cols) {
    const i64 bytes = packed_bytes(cols, bits);
    parts_of_rows(c, rows, cols, [&](i64 row, i64 begin, i64 end) {
        const auto* const from = y + row * bytes;
        auto* const to = q + row * cols;
        bits == 4   ? unpack_row<4>(from, to, begin, end)
        : bits == 2 ? unpack_row<2>(from, to, begin, end)
                    : unpack_row<1>(from, to, begin, end);
    });
}

/// How many of n magnitudes have bits from `first` on, which is above 0.
ORRERY_INLINE i64 count_from(const float* x, i64 n, std::int32_t first) {
    const Ints below = Ints{} + (first - 1);
    Ints a{}, b{};
    i64 i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
        a -= (Ints)abs(load(x + i)).v > below;
        b -= (Ints)abs(load(x + i + width)).v > below;
    }
    for (; i < n; i += width) a -= (Ints)abs(i + width <= n ? load(x + i) : load(x + i, n - i)).v > below;
    a += b;
    i64 count = 0;
    for (int lane = 0; lane < width; ++lane) count += a[lane];
    return count;
}

/// Writes the indices of the k largest magnitudes of n > k, in order. The bits of the smallest of them are found by
/// halving the range that they may be in; of equal ones the first are taken.
ORRERY_INLINE void choose(const float* x, i64 n, i64 k, std::int32_t* ids) {
    std::int32_t low = 0, high = top_bits(x, n, 0);  // at least k have bits from `low` on, fewer than k above `high`
    i64 from_low = n;
    while (low < high && from_low != k) {
        const std::int32_t middle = high - (high - low) / 2;
        const i64 count = count_from(x, n, middle);
        if (count >= k)
            low = middle, from_low = count;
        else
            high = middle - 1;
    }
    i64 equal = from_low == k ? k : k - (high == INT32_MAX ? 0 : count_from(x, n, high + 1));
    for (i64 i = 0, taken = 0; taken < k; i += width) {
        const Vec v = i + width <= n ? load(x + i) : load(x + i, n - i);
        const Ints bits = (Ints)abs(v).v, in = bits >= Ints{} + low;
#if defined(__AVX512F__)
        unsigned lanes = _mm512_movepi32_mask((__m512i)in);
#elif defined(__AVX2__)
        auto lanes = static_cast<unsigned>(_mm256_movemask_ps((__m256)in));
#elif defined(__SSE2__)
        auto lanes = static_cast<unsigned>(_mm_movemask_ps((__m128)in));
#else
        unsigned lanes = 0;
        for (int lane = 0; lane < width; ++lane) lanes |= (in[lane] != 0 ? 1u : 0u) << lane;
#endif
        for (; lanes != 0 && taken < k; lanes &= lanes - 1) {
            const int lane = __builtin_ctz(lanes);
            const bool chosen = from_low == k || bits[lane] > low || equal-- > 0;
            if (chosen) ids[taken++] = static_cast<std::int32_t>(i + lane);
        }
    }
}

template <class W>
ORRERY_INLINE void take(const W* x, const std::int32_t* ids, i64 n, i64 k, W* values) {
    for (i64 j = 0; j < n; ++j) values[j] = x[ids[j]];
    for (i64 j = n; j < k; ++j) values[j] = W{0};
}

void block_top_k(Context& c, const Blocks& s, i64 k, In x, Out values, std::int32_t* ids) {
    const int parts = parts_of(c.threads(), s.count(), 1 + grain / (s.block + 1));
    const bool wide = x.type == Type::f32;
    auto* const widened = static_cast<float*>(c.scratch(wide ? 0 : parts * s.block * 4));
    team(parts, [&](int part) {
        float* const buffer = widened + part * s.block;
        const i64 end = cut(s.count(), parts, part + 1, 1);
        for (i64 b = cut(s.count(), parts, part, 1); b < end; ++b) {
            const i64 first = s.first(b), size = s.size(b), chosen = smaller(k, size);
            std::int32_t* const own = ids + b * k;
            if (size > k)
                choose(fetch(x, first, size, buffer), size, k, own);
            else
                for (i64 j = 0; j < k; ++j) own[j] = j < size ? static_cast<std::int32_t>(j) : -1;
            if (wide)
                take(x.as<std::uint32_t>() + first, own, chosen, k, values.as<std::uint32_t>() + b * k);
            else
                take(x.as<std::uint16_t>() + first, own, chosen, k, values.as<std::uint16_t>() + b * k);
        }
    });
}

constexpr i64 factor_rows = 1024;  ///< products of so many rows are summed first, for any number of threads

/// gram [cols, cols] = the upper triangle of x^T x. `row`: memory for a row.
ORRERY_INLINE void sum_products(const float* x, i64 rows, i64 cols, double* row, double* gram) {
    for (i64 i = 0; i < cols * cols; ++i) gram[i] = 0;
    for (i64 r = 0; r < rows; ++r) {
        for (i64 i = 0; i < cols; ++i) row[i] = static_cast<double>(x[r * cols + i]);
        for (i64 i = 0; i < cols; ++i)
            for (i64 j = i; j < cols; ++j) gram[i * cols + j] += row[i] * row[j];
    }
}

/// y = x v for an upper triangle v [cols, cols].
ORRERY_INLINE void times_upper(const float* x, i64 rows, i64 cols, const double* v, double* row, float* y) {
    for (i64 r = 0; r < rows; ++r) {
        for (i64 i = 0; i < cols; ++i) row[i] = 0;
        for (i64 i = 0; i < cols; ++i) {
            const auto factor = static_cast<double>(x[r * cols + i]);
            for (i64 j = i; j < cols; ++j) row[j] += factor * v[i * cols + j];
        }
        for (i64 i = 0; i < cols; ++i) y[r * cols + i] = static_cast<float>(row[i]);
    }
}

void orthogonalize(Context& c, i64 matrices, i64 rows, i64 cols, In x, Out y) {
    const i64 pieces = (rows + factor_rows - 1) / factor_rows, square = cols * cols;
    auto* const grams = static_cast<double*>(c.scratch((pieces + 1) * (square + cols) * 8));
    double* const u = grams + pieces * (square + cols);
    const auto each_piece = [&](auto f) {
        parallel(c.threads(), pieces, 1 + grain / (factor_rows * square), 1, [&](i64 begin, i64 end) {
            for (i64 p = begin; p < end; ++p)
                f(p * factor_rows, smaller(factor_rows, rows - p * factor_rows), grams + p * (square + cols));
        });
    };
    for (i64 b = 0; b < matrices; ++b) {
        const float* from = x.as<float>() + b * rows * cols;
        float* const to = y.as<float>() + b * rows * cols;
        for (int time = 0; time < 2; ++time, from = to) {
            each_piece([&](i64 first, i64 size, double* gram) {
                sum_products(from + first * cols, size, cols, gram + square, gram);
            });
            for (i64 p = 1; p < pieces; ++p)
                for (i64 i = 0; i < square; ++i) grams[i] += grams[p * (square + cols) + i];
            invert_gram(grams, u, cols, 0, 1, [] {});
            each_piece([&](i64 first, i64 size, double* gram) {
                times_upper(from + first * cols, size, cols, grams, gram + square, to + first * cols);
            });
        }
    }
}

}  // namespace

void add_codes(Kernels& k) {
    k.quantize = quantize;
    k.dequantize = dequantize;
    k.pack = pack;
    k.unpack = unpack;
    k.block_top_k = block_top_k;
    k.orthogonalize = orthogonalize;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
