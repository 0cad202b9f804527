// Kernels that move bytes: constants, copies, slices, concatenations, padding, rolls and transposition.
#pragma once

#include <cstring>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// Fills memory with a pattern of 16 bytes.
struct Fill {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    unsigned char* to;
    i64 bytes;
    bool wide;
    Words pattern;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = (b.index() * threads + b.thread()) * 16; i < bytes; i += b.blocks() * threads * 16) {
            if (wide && i + 16 <= bytes) {
                store16(to + i, pattern);
            } else {
                const auto* from = reinterpret_cast<const unsigned char*>(&pattern);
                for (int j = 0; j < 16 && i + j < bytes; ++j) to[i + j] = from[j];
            }
        }
    }
};

void fill(Call& call, void* to, i64 bytes, const Words& pattern) {
    launch(call, blocks_for(call, bytes, Fill::threads * 16),
           Fill{static_cast<unsigned char*>(to), bytes, aligned(to), pattern});
}

template <class T>
Words repeated(T value) {
    Words words;
    for (size_t i = 0; i < 16; i += sizeof(T)) std::memcpy(reinterpret_cast<char*>(&words) + i, &value, sizeof(T));
    return words;
}

Words pattern_of(Type type, double value) {
    switch (type) {
        case Type::f64: return repeated(value);
        case Type::bf16: return repeated(to_bf16(static_cast<float>(value)));
        case Type::f16: return repeated(to_f16(static_cast<float>(value)));
        case Type::i32: return repeated(static_cast<std::int32_t>(value));
        case Type::u32: return repeated(static_cast<std::uint32_t>(value));
        case Type::u8: return repeated(static_cast<std::uint8_t>(value));
        case Type::i8: return repeated(static_cast<std::int8_t>(value));
        case Type::f8e4m3:
        case Type::f8e5m2: return Words{};  // the rule of full allows only 0, whose bits are 0
        default: return repeated(static_cast<float>(value));
    }
}

void full(kernels::Context& context, Out y, i64 n, double value) {
    fill(call_of(context), y.data, n * size_of(y.type), pattern_of(y.type, value));
}

/// Copies a box of words: word (i0, .., i_last) from sum i*from_step to sum i*to_step.
template <class W>
struct Box {
    static constexpr int threads = 256;
    static constexpr bool barriers = false;
    const W* from;
    W* to;
    i64 size[max_dims], from_step[max_dims], to_step[max_dims];
    int dims;
    i64 n;
    ORRERY_DEVICE void operator()(const Block& b) const {
        for (i64 i = b.index() * threads + b.thread(); i < n; i += b.blocks() * threads) {
            i64 rest = i, source = 0, target = 0;
            for (int d = dims - 1; d > 0; --d) {
                // 32-bit division if the number fits: several times faster.
                const i64 next =
                    n < (i64{1} << 31)
                        ? static_cast<i64>(static_cast<std::uint32_t>(rest) / static_cast<std::uint32_t>(size[d]))
                        : rest / size[d];
                const i64 index = rest - next * size[d];
                rest = next;
                source += index * from_step[d];
                target += index * to_step[d];
            }
            to[target + rest * to_step[0]] = from[source + rest * from_step[0]];
        }
    }
};

/// A box in bytes: the last dim has step 1 on both sides.
struct Bytes {
    const unsigned char* from;
    unsigned char* to;
    i64 size[max_dims + 1], from_step[max_dims + 1], to_step[max_dims + 1];
    int dims = 0;

    void dim(i64 n, i64 from_stride, i64 to_stride) {
        if (n == 1 && dims > 0) return;
        if (dims > 0 && from_step[dims - 1] == n * from_stride && to_step[dims - 1] == n * to_stride) {
            size[dims - 1] *= n;
            from_step[dims - 1] = from_stride;
            to_step[dims - 1] = to_stride;
            return;
        }
        size[dims] = n;
        from_step[dims] = from_stride;
        to_step[dims++] = to_stride;
    }
    bool divides(i64 w) const {
        if (size[dims - 1] % w != 0 || from_step[dims - 1] != 1 || to_step[dims - 1] != 1) return false;
        if (reinterpret_cast<std::uintptr_t>(from) % static_cast<size_t>(w) != 0 ||
            reinterpret_cast<std::uintptr_t>(to) % static_cast<size_t>(w) != 0)
            return false;
        for (int d = 0; d + 1 < dims; ++d) {
            if (from_step[d] % w != 0 || to_step[d] % w != 0) return false;
        }
        return true;
    }
};

template <class W>
void copy_words(Call& call, const Bytes& bytes) {
    constexpr i64 w = sizeof(W);
    Box<W> box{};
    box.from = reinterpret_cast<const W*>(bytes.from);
    box.to = reinterpret_cast<W*>(bytes.to);
    box.n = 1;
    for (int d = 0; d < bytes.dims; ++d) {
        const bool last = d == bytes.dims - 1;
        const i64 size = last ? bytes.size[d] / w : bytes.size[d];
        if (last && size == 1 && box.dims > 0) continue;
        box.size[box.dims] = size;
        // The words of the last dim are contiguous, unless they are single bytes.
        box.from_step[box.dims] = last && w > 1 ? 1 : bytes.from_step[d] / w;
        box.to_step[box.dims++] = last && w > 1 ? 1 : bytes.to_step[d] / w;
        box.n *= size;
    }
    launch(call, blocks_for(call, box.n, Box<W>::threads), box);
}

void copy_bytes(Call& call, const Bytes& bytes) {
    if (bytes.divides(16)) return copy_words<Words>(call, bytes);
    if (bytes.divides(4)) return copy_words<std::uint32_t>(call, bytes);
    if (bytes.divides(2)) return copy_words<std::uint16_t>(call, bytes);
    copy_words<unsigned char>(call, bytes);
}

/// Copies slabs of a shape along one dim: `outer` blocks, `inner` bytes for each index of the dim.
void copy_slabs(Call& call, Shape shape, int dim, Type type, const void* from, i64 from_size, i64 from_at, void* to,
                i64 to_size, i64 to_at, i64 size) {
    i64 outer = 1, inner = size_of(type);
    for (int d = 0; d < dim; ++d) outer *= shape[static_cast<size_t>(d)];
    for (size_t d = static_cast<size_t>(dim) + 1; d < shape.size(); ++d) inner *= shape[d];
    if (outer * inner * size == 0) return;
    Bytes bytes{};
    bytes.from = static_cast<const unsigned char*>(from) + from_at * inner;
    bytes.to = static_cast<unsigned char*>(to) + to_at * inner;
    bytes.dim(outer, from_size * inner, to_size * inner);
    bytes.dim(size * inner, 1, 1);
    copy_bytes(call, bytes);
}

void slice(kernels::Context& context, In x, Shape shape, int dim, i64 start, i64 size, Out y) {
    copy_slabs(call_of(context), shape, dim, x.type, x.data, shape[static_cast<size_t>(dim)], start, y.data, size, 0,
               size);
}

void concat(kernels::Context& context, std::span<const In> x, Shape shape, int dim, Shape sizes, Out y) {
    i64 total = 0, at = 0;
    for (i64 size : sizes) total += size;
    for (size_t i = 0; i < x.size(); at += sizes[i++]) {
        copy_slabs(call_of(context), shape, dim, y.type, x[i].data, sizes[i], 0, y.data, total, at, sizes[i]);
    }
}

void pad(kernels::Context& context, In x, Shape shape, int dim, i64 before, i64 after, Out y) {
    const i64 own = shape[static_cast<size_t>(dim)], total = before + own + after;
    const i64 rest = own > 0 ? count_of(shape) / own : [&] {
        i64 n = 1;
        for (size_t d = 0; d < shape.size(); ++d) n *= d == static_cast<size_t>(dim) ? 1 : shape[d];
        return n;
    }();
    fill(call_of(context), y.data, rest * total * size_of(y.type), Words{});
    copy_slabs(call_of(context), shape, dim, x.type, x.data, own, 0, y.data, total, before, own);
}

void roll(kernels::Context& context, In x, Shape shape, int dim, i64 by, Out y) {
    const i64 size = shape[static_cast<size_t>(dim)], rest = size - by;
    copy_slabs(call_of(context), shape, dim, x.type, x.data, size, 0, y.data, size, by, rest);
    copy_slabs(call_of(context), shape, dim, x.type, x.data, size, rest, y.data, size, 0, by);
}

void transpose(kernels::Context& context, In x, Shape shape, std::span<const int> perm, Out y) {
    if (count_of(shape) == 0) return;
    i64 dense[max_dims + 1];
    dense[shape.size()] = size_of(x.type);
    for (size_t d = shape.size(); d-- > 0;) dense[d] = dense[d + 1] * shape[d];
    i64 to_step = dense[0];
    Bytes bytes{};
    bytes.from = static_cast<const unsigned char*>(x.data);
    bytes.to = static_cast<unsigned char*>(y.data);
    for (int d : perm) {
        const auto p = static_cast<size_t>(d);
        to_step /= shape[p];
        bytes.dim(shape[p], dense[p + 1], to_step);
    }
    bytes.dim(size_of(x.type), 1, 1);
    copy_bytes(call_of(context), bytes);
}

}  // namespace

void copy_dense(Call& call, const void* from, void* to, i64 n) {
    if (from == to || n == 0) return;
    Bytes bytes{};
    bytes.from = static_cast<const unsigned char*>(from);
    bytes.to = static_cast<unsigned char*>(to);
    bytes.dim(n, 1, 1);
    copy_bytes(call, bytes);
}

void add_moves(Kernels& k) {
    k.full = full;
    k.transpose = transpose;
    k.slice = slice;
    k.concat = concat;
    k.pad = pad;
    k.roll = roll;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
