// Moving elements: transpose in tiles, slices and rolls as runs of bytes.
#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

/// A permutation with joined dims where adjacent dims stay adjacent: sizes and input strides in the order of the
/// output.
struct Permutation {
    int dims = 0;
    i64 size[max_dims] = {};
    i64 stride[max_dims] = {};  ///< strides in the input, in elements

    Permutation(Shape shape, std::span<const int> perm) {
        i64 strides[max_dims], step = 1;
        for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
            strides[d] = step;
            step *= shape[d];
        }
        for (const int d : perm) {
            if (shape[d] == 1) continue;
            if (dims > 0 && stride[dims - 1] == strides[d] * shape[d]) {
                size[dims - 1] *= shape[d];
                stride[dims - 1] = strides[d];
            } else {
                size[dims] = shape[d];
                stride[dims++] = strides[d];
            }
        }
        if (dims == 0) {
            size[0] = stride[0] = 1;
            dims = 1;
        }
    }
};

/// y [rows, cols] with x[r, c] at r * row_stride + c * col_stride, in squares that fit the first-level cache.
template <class T>
void copy_square(const T* x, i64 row_stride, i64 col_stride, T* y, i64 rows, i64 cols, i64 y_stride) {
    constexpr i64 side = 16;
    for (i64 r0 = 0; r0 < rows; r0 += side) {
        for (i64 c0 = 0; c0 < cols; c0 += side) {
            const i64 r1 = r0 + side < rows ? r0 + side : rows, c1 = c0 + side < cols ? c0 + side : cols;
            for (i64 r = r0; r < r1; ++r) {
                for (i64 col = c0; col < c1; ++col) y[r * y_stride + col] = x[r * row_stride + col * col_stride];
            }
        }
    }
}

template <class T>
void permute(Context& c, const T* x, T* y, const Permutation& p) {
    const int last = p.dims - 1;
    const i64 cols = p.size[last];
    i64 rows = 1;
    for (int d = 0; d < last; ++d) rows *= p.size[d];
    // Rows of one square come from the dim before the last.
    const i64 band = last > 0 ? p.size[last - 1] : 1, bands = rows / band;
    const i64 cut_rows = bands >= 64 ? band : (band + 15) / 16 * 16 < 64 ? band : 64;
    const i64 pieces = (band + cut_rows - 1) / cut_rows;
    parallel(c.threads(), bands * pieces, 1 + grain / (cut_rows * cols + 1), 1, [&](i64 begin, i64 end) {
        for (i64 i = begin; i < end; ++i) {
            i64 rest = i / pieces;
            const i64 r0 = i % pieces * cut_rows, n = band - r0 < cut_rows ? band - r0 : cut_rows;
            const i64 to = (rest * band + r0) * cols;
            i64 from = last > 0 ? r0 * p.stride[last - 1] : 0;
            for (int d = last - 2; d >= 0; rest /= p.size[d], --d) from += rest % p.size[d] * p.stride[d];
            if (p.stride[last] == 1) {
                for (i64 r = 0; r < n; ++r) {
                    __builtin_memcpy(y + to + r * cols, x + from + (last > 0 ? r * p.stride[last - 1] : 0),
                                     static_cast<size_t>(cols) * sizeof(T));
                }
            } else {
                copy_square(x + from, last > 0 ? p.stride[last - 1] : 0, p.stride[last], y + to, n, cols, cols);
            }
        }
    });
}

void transpose(Context& c, In x, Shape shape, std::span<const int> perm, Out y) {
    for (i64 size : shape) {
        if (size == 0) return;
    }
    const Permutation p(shape, perm);
    switch (size_of(x.type)) {
        case 1: return permute(c, x.as<std::uint8_t>(), y.as<std::uint8_t>(), p);
        case 2: return permute(c, x.as<std::uint16_t>(), y.as<std::uint16_t>(), p);
        case 4: return permute(c, x.as<std::uint32_t>(), y.as<std::uint32_t>(), p);
        default: return permute(c, x.as<std::uint64_t>(), y.as<std::uint64_t>(), p);
    }
}

/// Copies `outer` runs of `bytes`, with different distances in source and target.
void copy_runs(Context& c, const char* from, i64 from_step, char* to, i64 to_step, i64 outer, i64 bytes) {
    parallel(c.threads(), outer, 1 + 4 * grain / (bytes + 1), 1, [=](i64 begin, i64 end) {
        for (i64 o = begin; o < end; ++o) {
            __builtin_memcpy(to + o * to_step, from + o * from_step, static_cast<size_t>(bytes));
        }
    });
}

/// A shape split at one dim: [outer, shape[dim], inner], inner in bytes.
struct Around {
    i64 outer = 1, inner;

    Around(Shape shape, int dim, Type type) : inner(size_of(type)) {
        for (int d = 0; d < dim; ++d) outer *= shape[d];
        for (size_t d = static_cast<size_t>(dim) + 1; d < shape.size(); ++d) inner *= shape[d];
    }
};

void slice(Context& c, In x, Shape shape, int dim, i64 start, i64 size, Out y) {
    const Around a(shape, dim, x.type);
    copy_runs(c, x.as<char>() + start * a.inner, shape[dim] * a.inner, y.as<char>(), size * a.inner, a.outer,
              size * a.inner);
}

void concat(Context& c, std::span<const In> x, Shape shape, int dim, Shape sizes, Out y) {
    const Around a(shape, dim, y.type);
    i64 total = 0, at = 0;
    for (i64 size : sizes) total += size;
    for (size_t i = 0; i < x.size(); ++i) {
        copy_runs(c, x[i].as<char>(), sizes[i] * a.inner, y.as<char>() + at * a.inner, total * a.inner, a.outer,
                  sizes[i] * a.inner);
        at += sizes[i];
    }
}

void pad(Context& c, In x, Shape shape, int dim, i64 before, i64 after, Out y) {
    const Around a(shape, dim, x.type);
    const i64 size = shape[dim], step = (before + size + after) * a.inner;
    for (i64 o = 0; o < a.outer; ++o) {
        char* row = y.as<char>() + o * step;
        __builtin_memset(row, 0, static_cast<size_t>(before * a.inner));
        __builtin_memset(row + (before + size) * a.inner, 0, static_cast<size_t>(after * a.inner));
    }
    copy_runs(c, x.as<char>(), size * a.inner, y.as<char>() + before * a.inner, step, a.outer, size * a.inner);
}

void roll(Context& c, In x, Shape shape, int dim, i64 by, Out y) {
    const Around a(shape, dim, x.type);
    const i64 size = shape[dim] * a.inner, moved = by * a.inner, rest = size - moved;
    copy_runs(c, x.as<char>(), size, y.as<char>() + moved, size, a.outer, rest);
    copy_runs(c, x.as<char>() + rest, size, y.as<char>(), size, a.outer, moved);
}

}  // namespace

void add_layout(Kernels& k) {
    k.transpose = transpose;
    k.slice = slice;
    k.concat = concat;
    k.pad = pad;
    k.roll = roll;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
