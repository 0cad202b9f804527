// Sums and maxima over dims, sums of squares, and all_finite. The order of additions is fixed by the sizes and the
// number of multiprocessors, so repetitions give the same bits.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

enum class Join { sum, max, sumsq, infinite };

namespace {

/// The contribution of an element.
ORRERY_DEVICE float mapped(Join join, float v) {
    const float power = join == Join::sumsq ? v * v : v, bad = v - v == 0.0f ? 0.0f : 1.0f;
    return join == Join::infinite ? bad : power;
}
ORRERY_DEVICE float joined(Join join, float a, float b) {
    return join == Join::max || join == Join::infinite ? Block::larger(a, b) : a + b;
}
ORRERY_DEVICE float nothing(Join join) { return join == Join::max ? -INFINITY : 0.0f; }
/// How to join partial results, to which mapped() has been applied already.
Join again(Join join) { return join == Join::sumsq ? Join::sum : join == Join::infinite ? Join::max : join; }

ORRERY_DEVICE float block_join(const Block& b, Join join, float value, float* room) {
    return join == Join::max || join == Join::infinite ? block_max(b, value, room) : block_sum(b, value, room);
}

/// y[row, part] of x [rows, cols], each part being `chunk` columns (a multiple of 8).
template <class T>
struct ReduceRows {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    const T* x;
    AnyOut y;
    i64 cols, chunk, parts;
    Join join;
    bool wide, accumulate, flag;  ///< flag: y is 1 when the result is 0
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 row = b.index() / parts, first = b.index() % parts * chunk;
        const T* p = x + row * cols;
        const i64 end = first + chunk < cols ? first + chunk : cols, step = b.threads() * run;
        float total = nothing(join);
        i64 c = first + b.thread() * run;
        for (; wide && c + 3 * step + run <= end; c += 4 * step) {
            Packed<T> packed[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) fetch(p + c + k * step, packed[k]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float v[run];
                unpack(packed[k], v);
#pragma unroll
                for (int l = 0; l < run; ++l) total = joined(join, total, mapped(join, v[l]));
            }
        }
        for (; c < end; c += step) {
            float v[run];
            load_run(p + c, end - c, wide, v);
#pragma unroll
            for (int l = 0; l < run; ++l) {
                if (c + l < end) total = joined(join, total, mapped(join, v[l]));
            }
        }
        total = block_join(b, join, total, b.shared<float>());
        if (b.thread() != 0) return;
        if (flag) total = total == 0.0f ? 1.0f : 0.0f;
        y.put(b.index(), total, accumulate);
    }
};

void reduce_rows(Call& call, Join join, In x, Out y, i64 rows, i64 cols, bool accumulate, bool flag = false) {
    // Enough parts to fill the chip, but none too small.
    const i64 wanted = divide_up(static_cast<i64>(call.multiprocessors) * 8, rows > 0 ? rows : 1);
    i64 parts = divide_up(cols, 8192);
    parts = parts < 1 ? 1 : parts < wanted ? parts : wanted;
    const i64 chunk = divide_up(divide_up(cols > 0 ? cols : 1, parts), run) * run;
    parts = cols > 0 ? divide_up(cols, chunk) : 1;
    const bool wide = rows == 1 ? aligned(x.data) : aligned_rows(x.data, x.type, cols), ends = parts == 1;
    const int threads = chunk >= 256 * run ? 256 : chunk >= 64 * run ? 64 : 32;
    float* partial = ends ? nullptr : call.take_array<float>(rows * parts);
    visit_float(x.type, [&]<class T>(T*) {
        const ReduceRows<T> body{static_cast<const T*>(x.data),
                                 AnyOut(ends ? y : Out(partial), false),
                                 cols,
                                 chunk,
                                 parts,
                                 join,
                                 wide,
                                 ends && accumulate,
                                 ends && flag};
        launch(call, rows * parts, body, 32 * 4, threads);
    });
    if (ends) return;
    const ReduceRows<float> last{partial,        AnyOut(y, false), parts, divide_up(parts, run) * run, 1, again(join),
                                 parts % 4 == 0, accumulate,       flag};
    launch(call, rows, last, 32 * 4, 64);
}

/// y[part, outer, inner] of x [outer, middle, inner], sums or maxima: 32 runs of columns by 8 rows a block, `chunk`
/// rows a part.
template <class T>
struct ReduceColumns {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    const T* x;
    AnyOut y;
    i64 outer, middle, inner, chunk, tiles;
    bool largest, wide, accumulate;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 tile = b.index() % tiles, o = b.index() / tiles % outer, part = b.index() / tiles / outer;
        const i64 c = (tile * 32 + b.thread() % 32) * run, lane = b.thread() / 32;
        const i64 end = (part + 1) * chunk < middle ? (part + 1) * chunk : middle;
        const Join join = largest ? Join::max : Join::sum;
        float total[run];
        for (float& t : total) t = nothing(join);
        if (c < inner) {
            const T* p = x + o * middle * inner + c;
            i64 r = part * chunk + lane;
            for (; wide && r + 24 < end; r += 32) {
                Packed<T> packed[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) fetch(p + (r + 8 * k) * inner, packed[k]);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    float v[run];
                    unpack(packed[k], v);
#pragma unroll
                    for (int l = 0; l < run; ++l) total[l] = joined(join, total[l], v[l]);
                }
            }
            for (; r < end; r += 8) {
                float v[run];
                load_run(p + r * inner, inner - c, wide, v);
#pragma unroll
                for (int l = 0; l < run; ++l) total[l] = joined(join, total[l], v[l]);
            }
        }
        float* room = b.shared<float>();  // [8 lanes, 8 of a run, 32]
        for (int l = 0; l < run; ++l) room[(lane * run + l) * 32 + b.thread() % 32] = total[l];
        b.sync();
        // From here on a thread per column.
        const int l = b.thread() / 32;
        float sum = nothing(join);
        for (int k = 0; k < 8; ++k) sum = joined(join, sum, room[(k * run + l) * 32 + b.thread() % 32]);
        if (c + l < inner) y.put((part * outer + o) * inner + c + l, sum, accumulate);
    }
};

/// y[c] joins x[part, c] over few parts, in their order: a thread a column, 8 parts at once. Columns from `split` on
/// are written to `second`.
struct JoinParts {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    const float* x;
    AnyOut y, second;
    i64 parts, cols, split;
    bool largest, accumulate;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const Join join = largest ? Join::max : Join::sum;
        const i64 c = b.index() * 32 + b.thread() % 32;
        float total = nothing(join);
        if (c < cols) {
#pragma unroll 8
            for (i64 part = b.thread() / 32; part < parts; part += 8) total = joined(join, total, x[part * cols + c]);
        }
        float* room = b.shared<float>();
        room[b.thread()] = total;
        b.sync();
        if (b.thread() >= 32 || c >= cols) return;
        for (int k = 1; k < 8; ++k) total = joined(join, total, room[k * 32 + b.thread()]);
        c < split ? y.put(c, total, accumulate) : second.put(c - split, total, accumulate);
    }
};

void join_parts(Call& call, Join join, const float* x, i64 parts, i64 cols, Out y, Out second, i64 split,
                bool accumulate) {
    const JoinParts body{x, AnyOut(y, false), AnyOut(second, false), parts, cols, split, join == Join::max, accumulate};
    launch(call, divide_up(cols, 32), body, 256 * 4);
}

/// join: sum or max.
void reduce_columns(Call& call, Join join, In x, Out y, i64 outer, i64 middle, i64 inner, bool accumulate) {
    const i64 tiles = divide_up(inner, 32 * run);
    const i64 wanted = divide_up(static_cast<i64>(call.multiprocessors) * 4, outer * tiles > 0 ? outer * tiles : 1);
    i64 parts = divide_up(middle, 32);
    parts = parts < 1 ? 1 : parts < wanted ? parts : wanted;
    const i64 chunk = divide_up(middle > 0 ? middle : 1, parts);
    parts = middle > 0 ? divide_up(middle, chunk) : 1;
    constexpr i64 room = 8 * run * 32 * 4;
    const bool ends = parts == 1;
    float* partial = ends ? nullptr : call.take_array<float>(parts * outer * inner);
    visit_float(x.type, [&]<class T>(T*) {
        const ReduceColumns<T> body{static_cast<const T*>(x.data),
                                    AnyOut(ends ? y : Out(partial), false),
                                    outer,
                                    middle,
                                    inner,
                                    chunk,
                                    tiles,
                                    join == Join::max,
                                    inner % run == 0 && aligned(x.data),
                                    ends && accumulate};
        launch(call, parts * outer * tiles, body, room);
    });
    if (!ends) join_parts(call, join, partial, parts, outer * inner, y, {}, outer * inner, accumulate);
}

/// Any dims: one block per result, which walks the reduced dims by their strides.
struct ReduceAny {
    static constexpr int threads = 128;
    static constexpr bool barriers = true;
    AnyIn x;
    AnyOut y;
    i64 kept[max_dims] = {}, kept_step[max_dims] = {}, gone[max_dims] = {}, gone_step[max_dims] = {};
    int kept_dims = 0, gone_dims = 0;
    i64 results = 1, each = 1;
    Join join;
    bool accumulate;
    ORRERY_DEVICE void operator()(const Block& b) const {
        i64 base = 0, rest = b.index();
        for (int d = kept_dims - 1; d >= 0; --d) base += rest % kept[d] * kept_step[d], rest /= kept[d];
        float total = nothing(join);
        for (i64 i = b.thread(); i < each; i += threads) {
            i64 at = base, left = i;
            for (int d = gone_dims - 1; d >= 0; --d) at += left % gone[d] * gone_step[d], left /= gone[d];
            total = joined(join, total, mapped(join, x.at(at)));
        }
        total = block_join(b, join, total, b.shared<float>());
        if (b.thread() == 0) y.put(b.index(), total, accumulate);
    }
};

/// Adjacent dims of one kind are joined; those of size 1 are left out.
struct Dims {
    i64 size[max_dims] = {}, step[max_dims] = {};
    bool gone[max_dims] = {};
    int count = 0;

    Dims(Shape shape, std::uint32_t mask) {
        i64 dense = 1;
        for (i64 n : shape) dense *= n;
        for (size_t d = 0; d < shape.size(); ++d) {
            if (shape[d] == 0) return;
            dense /= shape[d];
            if (shape[d] == 1) continue;
            const bool out = (mask >> d & 1) != 0;
            if (count > 0 && gone[count - 1] == out) {
                size[count - 1] *= shape[d];
                step[count - 1] = dense;
            } else {
                size[count] = shape[d];
                step[count] = dense;
                gone[count++] = out;
            }
        }
    }
};

void reduce(kernels::Context& context, Reduce op, In x, Shape shape, std::uint32_t dims, Out y, bool accumulate) {
    Call& call = call_of(context);
    const Join join = op == Reduce::sum ? Join::sum : Join::max;
    i64 results = 1;
    for (size_t d = 0; d < shape.size(); ++d) results *= (dims >> d & 1) != 0 ? 1 : shape[d];
    const i64 n = count_of(shape);
    if (n == 0) return reduce_rows(call, join, x, y, results, 0, accumulate);
    const Dims all(shape, dims);
    if (all.count == 0) return reduce_rows(call, join, x, y, 1, 1, accumulate);
    const bool first_gone = all.gone[0];
    if (all.count == 1 && !first_gone) return reduce_columns(call, join, x, y, 1, 1, n, accumulate);
    if (all.count == 1) return reduce_rows(call, join, x, y, 1, n, accumulate);
    if (all.count == 2 && !first_gone) return reduce_rows(call, join, x, y, all.size[0], all.size[1], accumulate);
    if (all.count == 2) return reduce_columns(call, join, x, y, 1, all.size[0], all.size[1], accumulate);
    if (all.count == 3 && !first_gone)
        return reduce_columns(call, join, x, y, all.size[0], all.size[1], all.size[2], accumulate);
    ReduceAny body{};
    body.x = AnyIn(x, false);
    body.y = AnyOut(y, false);
    for (int d = 0; d < all.count; ++d) {
        if (all.gone[d]) {
            body.gone[body.gone_dims] = all.size[d];
            body.gone_step[body.gone_dims++] = all.step[d];
            body.each *= all.size[d];
        } else {
            body.kept[body.kept_dims] = all.size[d];
            body.kept_step[body.kept_dims++] = all.step[d];
        }
    }
    body.results = results;
    body.join = join;
    body.accumulate = accumulate;
    launch(call, results, body, 32 * 4);
}

void sumsq(kernels::Context& context, In x, Out y, i64 n) {
    reduce_rows(call_of(context), Join::sumsq, x, y, 1, n, false);
}

void all_finite(kernels::Context& context, In x, std::uint8_t* y, i64 n) {
    reduce_rows(call_of(context), Join::infinite, x, Out(y), 1, n, false, true);
}

}  // namespace

void add_reduce(Kernels& k) {
    k.reduce = reduce;
    k.sumsq = sumsq;
    k.all_finite = all_finite;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
