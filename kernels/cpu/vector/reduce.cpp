// Sums and maxima. Long sums are made of blocks of a fixed size, so neither their order nor their error depends on the
// number of threads.
#include "kernels/cpu/rows.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

constexpr i64 sum_block = 4096;  ///< elements of one partial sum
constexpr i64 row_block = 128;   ///< rows of one partial sum of columns

/// Views the shape as [outer, reduced, inner]; false when kept and reduced dims alternate more often.
bool three_dims(Shape shape, std::uint32_t dims, i64 (&size)[3]) {
    size[0] = size[1] = size[2] = 1;
    int at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == 1) continue;
        const bool reduced = (dims >> d & 1) != 0;
        if (reduced && at == 0) at = 1;
        if (!reduced && at == 1) at = 2;
        if (reduced && at == 2) return false;
        size[at] *= shape[d];
    }
    return true;
}

/// Sum of one contiguous run, in blocks.
float run_sum(In x, i64 at, i64 n) {
    double total = 0;
    float buffer[sum_block];
    for (i64 i = 0; i < n; i += sum_block) {
        const i64 size = n - i < sum_block ? n - i : sum_block;
        total += sum_map(
            size, [](Vec v) { return v; }, fetch(x, at + i, size, buffer));
    }
    return static_cast<float>(total);
}

float run_max(In x, i64 at, i64 n) {
    float top = -__builtin_inff(), buffer[tile];
    for (i64 i = 0; i < n; i += tile) {
        const i64 size = n - i < tile ? n - i : tile;
        const float* run = fetch(x, at + i, size, buffer);
        const float here = row_max(run, size, run[0]);
        if (here > top || here != here) top = here;
        if (top != top) break;
    }
    return top;
}

/// y [outer, cols] from x [outer, rows, cols]: blocks of rows first, then the blocks in order.
template <class F>
ORRERY_INLINE void columns(Context& c, In x, Out y, i64 outer, i64 rows, i64 cols, float first, bool accumulate, F f) {
    const i64 blocks = (rows + row_block - 1) / row_block, step = (cols + 15) / 16 * 16;
    float* partial = static_cast<float*>(c.scratch((blocks * step + step) * 4 + 64));
    for (i64 o = 0; o < outer; ++o) {
        parallel(c.threads(), blocks, 1 + grain / (row_block * cols + 1), 1, [&](i64 begin, i64 end) {
            float buffer[tile];
            for (i64 block = begin; block < end; ++block) {
                float* to = partial + block * step;
                map(to, cols, [v = Vec(first)]() { return v; });
                const i64 last = rows < (block + 1) * row_block ? rows : (block + 1) * row_block;
                for (i64 r = block * row_block; r < last; ++r) {
                    for (i64 j = 0; j < cols; j += tile) {
                        const i64 size = cols - j < tile ? cols - j : tile;
                        map(to + j, size, f, to + j, fetch(x, (o * rows + r) * cols + j, size, buffer));
                    }
                }
            }
        });
        float* total = partial + blocks * step;
        map(total, cols, [v = Vec(first)]() { return v; });
        for (i64 block = 0; block < blocks; ++block) map(total, cols, f, total, partial + block * step);
        float old[tile];
        for (i64 j = 0; j < cols; j += tile) {
            const i64 size = cols - j < tile ? cols - j : tile;
            if (accumulate) map(total + j, size, f, total + j, fetch(y, o * cols + j, size, old));
            float* to = target(y, o * cols + j, old);
            map(
                to, size, [](Vec v) { return v; }, total + j);
            flush(y, o * cols + j, size, to);
        }
    }
}

/// y = x, for dims of one element: as a sum, which has no -0.
void single(Context& c, Reduce op, In x, Out y, i64 n, bool accumulate) {
    parallel(c.threads(), (n + tile - 1) / tile, 1 + grain / tile, 1, [&, op, accumulate](i64 begin, i64 end) {
        float buffer[tile], value[tile], old[tile];
        for (i64 at = begin * tile; at < end * tile && at < n; at += tile) {
            const i64 size = n - at < tile ? n - at : tile;
            const float* run = fetch(x, at, size, buffer);
            if (op == Reduce::sum)
                map(
                    value, size, [](Vec v) { return v + Vec(0.0f); }, run);
            else
                map(
                    value, size, [](Vec v) { return v; }, run);
            if (accumulate)
                map(
                    value, size, [](Vec a, Vec b) { return a + b; }, value, fetch(y, at, size, old));
            float* to = target(y, at, old);
            map(
                to, size, [](Vec v) { return v; }, value);
            flush(y, at, size, to);
        }
    });
}

void reduce(Context& c, Reduce op, In x, Shape shape, std::uint32_t dims, Out y, bool accumulate) {
    i64 size[3];
    const bool three = three_dims(shape, dims, size);
    if (!three || size[2] == 1) c.scratch(0);
    if (!three) return reference::table().reduce(c, op, x, shape, dims, y, accumulate);
    const auto [outer, reduced, inner] = size;
    if (inner > 1 && op == Reduce::sum) {
        return columns(c, x, y, outer, reduced, inner, 0, accumulate, [](Vec a, Vec b) { return a + b; });
    }
    if (inner > 1) {
        return columns(c, x, y, outer, reduced, inner, -__builtin_inff(), false,
                       [](Vec a, Vec b) { return select(a == a, max(a, b), a); });
    }
    const i64 n = reduced;
    if (n == 1) return single(c, op, x, y, outer, accumulate);
    parallel(c.threads(), outer, 1 + grain / (n + 1), 64, [&, op, accumulate](i64 begin, i64 end) {
        for (i64 o = begin; o < end; ++o) {
            float value = op == Reduce::sum ? run_sum(x, o * n, n) : run_max(x, o * n, n), buffer;
            if (accumulate) value += *fetch(y, o, 1, &buffer);
            *target(y, o, &buffer) = value;
            flush(y, o, 1, &buffer);
        }
    });
}

void sumsq(Context& c, In x, Out y, i64 n) {
    const i64 blocks = (n + sum_block - 1) / sum_block;
    double* partial = static_cast<double*>(c.scratch(blocks * 8 + 64));
    parallel(c.threads(), blocks, grain / sum_block, 1, [&](i64 begin, i64 end) {
        float buffer[sum_block];
        for (i64 b = begin; b < end; ++b) {
            const i64 at = b * sum_block, size = n - at < sum_block ? n - at : sum_block;
            partial[b] = sum_map(
                size, [](Vec v) { return v * v; }, fetch(x, at, size, buffer));
        }
    });
    double total = 0;
    for (i64 b = 0; b < blocks; ++b) total += partial[b];
    *y.as<float>() = static_cast<float>(total);
}

void all_finite(Context& c, In x, std::uint8_t* y, i64 n) {
    const i64 blocks = (n + sum_block - 1) / sum_block;
    auto* good = static_cast<std::uint8_t*>(c.scratch(blocks + 64));
    parallel(c.threads(), blocks, grain / sum_block, 1, [&](i64 begin, i64 end) {
        float buffer[sum_block];
        for (i64 b = begin; b < end; ++b) {
            const i64 at = b * sum_block, size = n - at < sum_block ? n - at : sum_block;
            // x - x is 0 for a finite x and NaN for any other.
            const float sum = sum_map(
                size, [](Vec v) { return v - v; }, fetch(x, at, size, buffer));
            good[b] = sum == 0;
        }
    });
    *y = 1;
    for (i64 b = 0; b < blocks; ++b) *y &= good[b];
}

}  // namespace

void add_reduce(Kernels& k) {
    k.reduce = reduce;
    k.sumsq = sumsq;
    k.all_finite = all_finite;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
