#include <algorithm>
#include <cstring>

#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

std::vector<std::byte> bytes_of(In x, i64 n) {
    std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(x.type)));
    if (!bytes.empty()) std::memcpy(bytes.data(), x.data, bytes.size());
    return bytes;
}

void transpose(Context&, In x, Shape shape, std::span<const int> perm, Out y) {
    const std::vector<std::byte> from = bytes_of(x, count(shape));
    const i64 width = size_of(x.type), n = count(shape);
    for (i64 i = 0; i < n; ++i) {  // i walks y
        i64 index[max_dims] = {}, rest = i;
        for (i64 d = static_cast<i64>(perm.size()) - 1; d >= 0; --d) {
            index[perm[d]] = rest % shape[perm[d]];
            rest /= shape[perm[d]];
        }
        i64 at = 0;
        for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
        std::memcpy(y.as<std::byte>() + i * width, from.data() + at * width, static_cast<size_t>(width));
    }
}

/// A shape split at one dim: [outer, shape[dim], inner], inner in bytes.
struct Around {
    i64 outer, inner;

    Around(Shape shape, int dim, Type type)
        : outer(count(shape.first(static_cast<size_t>(dim)))),
          inner(count(shape.subspan(static_cast<size_t>(dim) + 1)) * size_of(type)) {}
};

/// Copies `size` slabs of each block, from slab from_at of `from_size` to slab to_at of `to_size`.
void copy(const Around& a, const std::byte* from, i64 from_size, i64 from_at, std::byte* to, i64 to_size, i64 to_at,
          i64 size) {
    for (i64 o = 0; o < a.outer; ++o) {
        std::copy_n(from + (o * from_size + from_at) * a.inner, size * a.inner, to + (o * to_size + to_at) * a.inner);
    }
}

void slice(Context&, In x, Shape shape, int dim, i64 start, i64 size, Out y) {
    copy(Around(shape, dim, x.type), x.as<std::byte>(), shape[dim], start, y.as<std::byte>(), size, 0, size);
}

void concat(Context&, std::span<const In> x, Shape shape, int dim, Shape sizes, Out y) {
    i64 at = 0;
    const i64 total = [&] {
        i64 sum = 0;
        for (i64 size : sizes) sum += size;
        return sum;
    }();
    for (size_t i = 0; i < x.size(); ++i) {
        copy(Around(shape, dim, y.type), x[i].as<std::byte>(), sizes[i], 0, y.as<std::byte>(), total, at, sizes[i]);
        at += sizes[i];
    }
}

void pad(Context&, In x, Shape shape, int dim, i64 before, i64 after, Out y) {
    const Around around(shape, dim, x.type);
    const i64 total = before + shape[dim] + after;
    std::fill_n(y.as<std::byte>(), around.outer * total * around.inner, std::byte{0});
    copy(around, x.as<std::byte>(), shape[dim], 0, y.as<std::byte>(), total, before, shape[dim]);
}

void roll(Context&, In x, Shape shape, int dim, i64 by, Out y) {
    const Around around(shape, dim, x.type);
    const i64 size = shape[dim], rest = size - by;
    const std::vector<std::byte> from = bytes_of(x, count(shape));
    copy(around, from.data(), size, 0, y.as<std::byte>(), size, by, rest);
    copy(around, from.data(), size, rest, y.as<std::byte>(), size, 0, by);
}

}  // namespace

void add_layout(Kernels& k) {
    k.transpose = transpose;
    k.slice = slice;
    k.concat = concat;
    k.pad = pad;
    k.roll = roll;
}

}  // namespace orrery::kernels::reference
