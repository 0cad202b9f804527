// Codes of blocks of a row, their packing, and the largest elements of each block.
#pragma once

#include "kernels/codes.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/factors.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// The largest of the warp's numbers below 2^31. Floats hold both parts exactly.
ORRERY_DEVICE std::uint32_t largest_of_warp(const Block& b, std::uint32_t number) {
    const auto part = static_cast<float>(number >> 8);
    const float high = b.max(part, 32);
    const float low = b.max(part == high ? static_cast<float>(number & 0xffu) : 0.0f, 32);
    return static_cast<std::uint32_t>(high) << 8 | static_cast<std::uint32_t>(low);
}

/// A warp a block of elements.
struct QuantizeBlocks {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Blocks s;
    Code code;
    bool narrow;
    AnyIn x;
    std::uint8_t* q;
    AnyOut scale;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const int at_once = threads / 32, lane = b.thread() % 32;
        for (i64 block = b.index() * at_once + b.thread() / 32; block < s.count(); block += b.blocks() * at_once) {
            const i64 first = s.first(block), size = s.size(block);
            std::uint32_t top_bits = 0;  // magnitudes are in the order of their bits, NaNs above all numbers
            float sum = 0;
            for (i64 i = lane; i < size; i += 32) {
                const std::uint32_t bits = std::bit_cast<std::uint32_t>(x.at(first + i)) & 0x7fffffffu;
                top_bits = bits > top_bits ? bits : top_bits;
                sum += std::bit_cast<float>(bits);
            }
            const auto top = std::bit_cast<float>(largest_of_warp(b, top_bits));
            sum = b.sum(sum, 32);
            const float own =
                scale_of(code, code == Code::sign ? quotient(sum, static_cast<float>(size)) : top, narrow);
            const float inverse = inverse_of(own);
            for (i64 i = lane; i < size; i += 32) q[first + i] = code_of(code, x.at(first + i), own, inverse);
            if (lane != 0) continue;
            if (scale.type == Type::bf16)
                static_cast<bf16*>(scale.data)[block] = to_bf16(own);  // a GPU's own conversion changes NaNs
            else
                scale.put(block, own);
        }
    }
};

void quantize(kernels::Context& context, const Blocks& s, Code code, bool narrow, In x, void* q, Out scale) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, s.count(), QuantizeBlocks::threads / 32),
           QuantizeBlocks{s, code, narrow, AnyIn(x, false), static_cast<std::uint8_t*>(q), AnyOut(scale, false)});
}

struct DequantizeBlocks {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    Blocks s;
    Code code;
    const std::uint8_t* q;
    AnyIn scale;
    AnyOut y;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = b.index() * threads + b.thread(); i < s.rows * s.cols; i += b.blocks() * threads) {
            const i64 row = divided(i, s.cols);
            y.put(i, value_of(code, q[i], scale.at(row * s.blocks_per_row() + divided(i - row * s.cols, s.block))));
        }
    }
};

void dequantize(kernels::Context& context, const Blocks& s, Code code, const void* q, In scale, Out y) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, s.rows * s.cols, DequantizeBlocks::threads),
           DequantizeBlocks{s, code, static_cast<const std::uint8_t*>(q), AnyIn(scale, false), AnyOut(y, false)});
}

struct PackBytes {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const std::int8_t* q;
    std::uint8_t* y;
    i64 rows, cols, bytes;
    int bits;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 each = 8 / bits;
        for (i64 i = b.index() * threads + b.thread(); i < rows * bytes; i += b.blocks() * threads) {
            const i64 row = divided(i, bytes), first = (i - row * bytes) * each;
            std::uint32_t byte = 0;
            for (i64 k = 0; k < each && first + k < cols; ++k)
                byte |= (static_cast<std::uint8_t>(q[row * cols + first + k]) & ((1u << bits) - 1)) << k * bits;
            y[i] = static_cast<std::uint8_t>(byte);
        }
    }
};

void pack(kernels::Context& context, int bits, const std::int8_t* q, std::uint8_t* y, i64 rows, i64 cols) {
    Call& call = call_of(context);
    const i64 bytes = divide_up(cols * bits, 8);
    launch(call, blocks_for(call, rows * bytes, PackBytes::threads), PackBytes{q, y, rows, cols, bytes, bits});
}

struct UnpackBytes {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const std::uint8_t* y;
    std::int8_t* q;
    i64 rows, cols, bytes;
    int bits;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = b.index() * threads + b.thread(); i < rows * cols; i += b.blocks() * threads) {
            const i64 row = divided(i, cols), at = (i - row * cols) * bits;
            const std::uint32_t code = y[row * bytes + at / 8] >> at % 8 & ((1u << bits) - 1);
            const std::uint32_t sign = 1u << (bits - 1);
            q[i] = static_cast<std::int8_t>((code ^ sign) - sign);
        }
    }
};

void unpack(kernels::Context& context, int bits, const std::uint8_t* y, std::int8_t* q, i64 rows, i64 cols) {
    Call& call = call_of(context);
    launch(call, blocks_for(call, rows * cols, UnpackBytes::threads),
           UnpackBytes{y, q, rows, cols, divide_up(cols * bits, 8), bits});
}

/// The k largest magnitudes of a block of elements, by one block of threads. It halves the range of the bits that the
/// smallest of them may have, as the CPU does; then each thread places what it has of a run of adjacent elements.
struct LargestOfBlock {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    Blocks s;
    i64 k;
    AnyIn x;
    AnyOut values;
    std::int32_t* ids;

    ORRERY_DEVICE std::uint32_t bits_at(i64 i) const { return std::bit_cast<std::uint32_t>(x.at(i)) & 0x7fffffffu; }

    ORRERY_DEVICE void operator()(const Block& b) const {
        auto* const partial = b.shared<std::uint64_t>();
        auto* const room = b.shared<float>(threads * 8);
        for (i64 block = b.index(); block < s.count(); block += b.blocks()) {
            const i64 first = s.first(block), size = s.size(block), chosen = k < size ? k : size;
            const auto count_from = [&](std::uint32_t least) {
                int count = 0;
                for (i64 i = b.thread(); i < size; i += b.threads()) count += bits_at(first + i) >= least ? 1 : 0;
                return static_cast<i64>(block_sum(b, static_cast<float>(count), room));
            };
            std::uint32_t low = 0, high = 0x7fffffffu;  // at least `chosen` from low on, fewer above high
            while (low < high) {
                const std::uint32_t middle = high - (high - low) / 2;
                if (count_from(middle) >= chosen)
                    low = middle;
                else
                    high = middle - 1;
            }
            const i64 each = divided(size + b.threads() - 1, b.threads()), begin = b.thread() * each;
            const i64 end = begin + each < size ? begin + each : size;
            std::uint64_t above = 0, equal = 0, all_above = 0, all_equal = 0;
            for (i64 i = begin; i < end; ++i) {
                const std::uint32_t bits = bits_at(first + i);
                above += bits > low ? 1 : 0;
                equal += bits == low ? 1 : 0;
            }
            const i64 above_before = static_cast<i64>(sum_before(b, above, partial, all_above));
            i64 equal_before = static_cast<i64>(sum_before(b, equal, partial, all_equal));
            const i64 wanted = chosen - static_cast<i64>(all_above);  // of those equal to low, the first
            i64 at = block * k + above_before + (equal_before < wanted ? equal_before : wanted);
            for (i64 i = begin; i < end; ++i) {
                const std::uint32_t bits = bits_at(first + i);
                if (bits < low || (bits == low && equal_before++ >= wanted)) continue;
                ids[at] = static_cast<std::int32_t>(i);
                values.put(at++, x.at(first + i));
            }
            for (i64 j = chosen + b.thread(); j < k; j += b.threads()) {
                ids[block * k + j] = -1;
                values.put(block * k + j, 0.0f);
            }
            b.sync();
        }
    }
};

void block_top_k(kernels::Context& context, const Blocks& s, i64 k, In x, Out values, std::int32_t* ids) {
    Call& call = call_of(context);
    const i64 wanted = power_above(s.block),
              threads = wanted < LargestOfBlock::threads ? wanted : LargestOfBlock::threads;
    launch(call, blocks_for(call, s.count(), 1), LargestOfBlock{s, k, AnyIn(x, false), AnyOut(values, false), ids},
           LargestOfBlock::threads * 8 + 128, static_cast<int>(threads));
}

/// A block of threads a matrix.
struct OrthonormalColumns {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    i64 rows, cols;
    const float* x;
    float* y;
    double* room;  ///< [matrices, 2, cols, cols]

    /// The upper triangle of from^T from: each thread adds one product of `slices` rows apart.
    ORRERY_DEVICE void sum_products(const Block& b, const float* from, double* gram) const {
        auto* const partial = b.shared<double>();
        const i64 pairs = cols * cols, slices = pairs < threads ? divided(threads, pairs) : 1;
        for (i64 first = 0; first < pairs; first += threads) {
            const i64 slice = divided(b.thread(), pairs), pair = first + b.thread() - slice * pairs;
            const i64 i = divided(pair, cols), j = pair - i * cols;
            const bool own = slice < slices && pair < pairs && j >= i;
            double sum = 0;
            for (i64 r = slice; own && r < rows; r += slices)
                sum += static_cast<double>(from[r * cols + i]) * static_cast<double>(from[r * cols + j]);
            partial[b.thread()] = sum;
            b.sync();
            if (own && slice == 0) {
                for (i64 s = 1; s < slices; ++s) sum += partial[s * pairs + pair];
                gram[pair] = sum;
            }
            b.sync();
        }
    }

    ORRERY_DEVICE void operator()(const Block& b) const {
        const float* from = x + b.index() * rows * cols;
        float* const to = y + b.index() * rows * cols;
        double *const gram = room + b.index() * 2 * cols * cols, *const u = gram + cols * cols;
        for (int time = 0; time < 2; ++time, from = to) {
            sum_products(b, from, gram);
            invert_gram(gram, u, cols, b.thread(), b.threads(), [&] { b.sync(); });
            for (i64 r = b.thread(); r < rows; r += b.threads())
                for (i64 j = cols - 1; j >= 0; --j) {  // columns before j are still those of x where y is x
                    double sum = 0;
                    for (i64 i = 0; i <= j; ++i) sum += static_cast<double>(from[r * cols + i]) * gram[i * cols + j];
                    to[r * cols + j] = static_cast<float>(sum);
                }
            b.sync();
        }
    }
};

void orthogonalize(kernels::Context& context, i64 matrices, i64 rows, i64 cols, In x, Out y) {
    Call& call = call_of(context);
    auto* const room = call.take_array<double>(matrices * 2 * cols * cols);
    launch(call, matrices,
           OrthonormalColumns{rows, cols, static_cast<const float*>(x.data), static_cast<float*>(y.data), room},
           OrthonormalColumns::threads * 8);
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

}  // namespace orrery::kernels::ORRERY_BLOCKS
