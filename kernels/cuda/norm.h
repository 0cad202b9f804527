// Layer norms of rows of whole runs at aligned addresses: a row stays in the registers of 32 to 1024 threads (512 with
// a residual) between the statistics and the result.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/norm_any.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// The threads of a row: a power of two, at least a warp. A block has one or more groups.
struct Group {
    int shift = 5;

    Group(i64 cols, int held) {
        while (size() * held * run < cols) ++shift;
    }
    constexpr int size() const { return 1 << shift; }
    constexpr int among(int threads) const { return threads >> shift; }
    ORRERY_DEVICE int own(const Block& b) const { return b.thread() >> shift; }
    ORRERY_DEVICE int lane(const Block& b) const { return b.thread() & (size() - 1); }
};

/// Sum over the threads of a group, the same bits in all; room: one float a warp, used once.
ORRERY_DEVICE float group_sum(const Block& b, const Group& group, float value, float* room) {
    value = b.sum(value, 32);
    if (group.size() == 32) return value;
    if (b.thread() % 32 == 0) room[b.thread() / 32] = value;
    b.sync_part(group.own(b), group.size());
    const int warps = group.size() / 32, first = group.own(b) * warps;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += room[first + w];
    return total;
}

/// y = (x - mean) rstd gain + bias; without `centred` mean is 0 and there is no bias. With `adds` x + residual, as
/// rounded in sum, replaces x. Runs of eight columns at aligned addresses, one group a row.
template <class T, bool centred, bool adds>
struct Norm {
    static constexpr int threads = adds ? 512 : 1024;  // 128 or 64 registers each
    static constexpr bool barriers = true;
    static constexpr int held = 4;
    static constexpr i64 most_cols = i64{threads} * held * run;
    const T *x, *residual;
    T *y, *sum;
    AnyIn gain, bias;
    float *mean, *rstd;
    i64 rows;
    float eps;
    int cols;
    Group group;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const int lane = group.lane(b) * run, stride = group.size() * run;
        const i64 row = b.index() * group.among(b.threads()) + group.own(b);
        const bool mine = row < rows;
        Packed<T> packed[held];
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * stride + lane;
            fetch(x + row * cols + c, mine && c < cols, packed[k]);
        }
        if constexpr (adds) add_residual(row * cols, lane, stride, mine, packed);
        float v[held][run], total = 0;
#pragma unroll
        for (int k = 0; k < held; ++k) unpack(packed[k], v[k]);
        const float n = 1.0f / static_cast<float>(cols);
        float middle = 0;
        if (centred) {
#pragma unroll
            for (int k = 0; k < held; ++k) {
#pragma unroll
                for (int l = 0; l < run; ++l) total += v[k][l];
            }
            middle = group_sum(b, group, total, b.shared<float>()) * n;
        }
        float square = 0;
#pragma unroll
        for (int k = 0; k < held; ++k) {
            float here = 0;
#pragma unroll
            for (int l = 0; l < run; ++l) here += (v[k][l] - middle) * (v[k][l] - middle);
            square += k * stride + lane < cols ? here : 0.0f;
        }
        const float scale = 1.0f / sqrtf(group_sum(b, group, square, b.shared<float>() + 32) * n + eps);
        if (!mine) return;
        if (lane == 0) {
            if (centred) mean[row] = middle;
            rstd[row] = scale;
        }
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * stride + lane;
            Packed<float> constants;
            float g[run], add[run] = {};
            gain.fetch(c, c < cols, constants);
            gain.unpack(constants, g);
#pragma unroll
            for (int l = 0; l < run; ++l) v[k][l] = (v[k][l] - middle) * scale * g[l];
            if (centred) {  // one at a time: there are 64 registers
                bias.fetch(c, c < cols, constants);
                bias.unpack(constants, add);
            }
#pragma unroll
            for (int l = 0; l < run; ++l) v[k][l] += add[l];
            if (c < cols) store_run(y + row * cols + c, v[k]);
        }
    }

    /// Loads x and stores sum = x + residual, in their type.
    ORRERY_DEVICE void add_residual(i64 at, int lane, int stride, bool mine, Packed<T> (&x)[held]) const {
        Packed<T> more[held];
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * stride + lane;
            fetch(residual + at + c, mine && c < cols, more[k]);
        }
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * stride + lane;
            float a[run], b[run];
            unpack(x[k], a);
            unpack(more[k], b);
#pragma unroll
            for (int l = 0; l < run; ++l) a[l] += b[l];
            pack(a, x[k]);
            if (mine && c < cols) put(sum + at + c, x[k]);
        }
    }
};

/// dx of each row, with `adds` plus dsum, and for each block the sums over its rows for dgain and dbias. The next row
/// of 16-bit elements is loaded while one is processed.
template <class T, bool centred, bool adds>
struct NormGrad {
    static constexpr int threads = 512;  // 128 registers each
    static constexpr bool barriers = true;
    static constexpr int held = 2;
    static constexpr i64 most_cols = threads * held * run;
    static constexpr bool ahead = sizeof(T) == 2;         ///< floats leave no registers for it
    static constexpr bool sum_early = ahead && !centred;  ///< load dsum before the barrier; also needs registers
    const T *x, *dy, *dsum;
    T* dx;
    AnyIn gain;
    const float *mean, *rstd;
    float* sums;  ///< [blocks, dgain and dbias, cols]
    i64 rows;
    int cols;
    Group group;

    /// A row as stored in memory, and its statistics.
    struct Row {
        Packed<T> x[held], dy[held];
        float middle, scale;
    };
    ORRERY_DEVICE void read(i64 row, int lane, Row& r) const {
        const bool there = row < rows;
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * group.size() * run + lane;
            fetch(x + row * cols + c, there && c < cols, r.x[k]);
            fetch(dy + row * cols + c, there && c < cols, r.dy[k]);
        }
        r.middle = centred && there ? mean[row] : 0.0f;
        r.scale = there ? rstd[row] : 0.0f;
    }

    ORRERY_DEVICE void fetch_sum(i64 row, int k, int lane, Packed<T>& more) const {
        const int c = k * group.size() * run + lane;
        fetch(dsum + row * cols + c, c < cols, more);
    }

    ORRERY_DEVICE void operator()(const Block& b) const {
        const int per_block = group.among(b.threads()), lane = group.lane(b) * run;
        const i64 groups = b.blocks() * per_block;
        const float n = 1.0f / static_cast<float>(cols);
        i64 row = b.index() * per_block + group.own(b);
        Row next;
        read(row, lane, next);
        float dg[held][run] = {}, db[held][run] = {}, g[held][run];
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const int c = k * group.size() * run + lane;
            Packed<float> packed;
            gain.fetch(c, c < cols, packed);
            gain.unpack(packed, g[k]);
        }
        for (int odd = 0; row < rows; row += groups, odd ^= 1) {
            float hat[held][run], d[held][run];
#pragma unroll
            for (int k = 0; k < held; ++k) {
                unpack(next.x[k], hat[k]);
                unpack(next.dy[k], d[k]);
            }
            const float middle = next.middle, scale = next.scale;
            Packed<T> more[adds ? held : 1];
            if (adds && sum_early) {
#pragma unroll
                for (int k = 0; k < held; ++k) fetch_sum(row, k, lane, more[k]);
            }
            if (ahead) read(row + groups, lane, next);
            float sum = 0, dot = 0;
#pragma unroll
            for (int k = 0; k < held; ++k) {
#pragma unroll
                for (int l = 0; l < run; ++l) {
                    hat[k][l] = (hat[k][l] - middle) * scale;
                    dg[k][l] += d[k][l] * hat[k][l];
                    if (centred) db[k][l] += d[k][l];
                    d[k][l] *= g[k][l];  // 0 after the last column
                    sum += d[k][l];
                    dot += d[k][l] * hat[k][l];
                }
            }
            both_sums(b, sum, dot, b.shared<float>() + odd * 32);
            sum *= n, dot *= n;
#pragma unroll
            for (int k = 0; k < held; ++k) {
                const int c = k * group.size() * run + lane;
#pragma unroll
                for (int l = 0; l < run; ++l) d[k][l] = scale * (d[k][l] - sum - hat[k][l] * dot);
                if constexpr (adds) {
                    float v[run];
                    if (!sum_early) fetch_sum(row, k, lane, more[k]);
                    unpack(more[k], v);
#pragma unroll
                    for (int l = 0; l < run; ++l) d[k][l] = add_rounded(d[k][l], v[l], T{});
                }
                if (c < cols) store_run(dx + row * cols + c, d[k]);
            }
            if (!ahead) read(row + groups, lane, next);
        }
        float* to = sums + b.index() * (centred ? 2 : 1) * cols;
        add_groups(b, dg, to, 0);
        if (centred) add_groups(b, db, to + cols, cols);
    }

    /// Sums over the group; room [sum and dot, 16 warps] alternates between two, so one barrier is enough.
    ORRERY_DEVICE void both_sums(const Block& b, float& sum, float& dot, float* room) const {
        dot = b.sum(dot, 32);
        sum = centred ? b.sum(sum, 32) : 0.0f;
        if (group.size() == 32) return;
        if (b.thread() % 32 == 0) {
            room[b.thread() / 32] = dot;
            if (centred) room[16 + b.thread() / 32] = sum;
        }
        b.sync_part(group.own(b), group.size());
        const int warps = group.size() / 32, first = group.own(b) * warps;
        sum = dot = 0;
        for (int w = 0; w < warps; ++w) {
            dot += room[first + w];
            if (centred) sum += room[16 + first + w];
        }
    }

    /// to = the sum over the groups of the block, in their order. from: offset in shared memory.
    ORRERY_DEVICE void add_groups(const Block& b, const float (&own_sums)[held][run], float* to, int from) const {
        const int per_block = group.among(b.threads()), lane = group.lane(b) * run, own = group.own(b);
        float* so_far = b.shared<float>(256) + from;
        for (int g = 0; g < per_block; ++g) {
            if (g > 0) b.sync();
            if (g != own) continue;
#pragma unroll
            for (int k = 0; k < held; ++k) {
                const int c = k * group.size() * run + lane;
                if (c >= cols) continue;
                float v[run];
#pragma unroll
                for (int l = 0; l < run; ++l) v[l] = (g > 0 ? so_far[c + l] : 0.0f) + own_sums[k][l];
                if (g == per_block - 1) {
                    for (int l = 0; l < run; ++l) to[c + l] = v[l];
                } else {
                    for (int l = 0; l < run; ++l) so_far[c + l] = v[l];
                }
            }
        }
    }
};

template <bool centred, bool adds>
void norm(Call& call, In x, In gain, In bias, In residual, Out y, Out mean, Out rstd, Out sum, i64 rows, i64 cols,
          double eps) {
    auto* means = static_cast<float*>(mean.data);
    auto* scales = static_cast<float*>(rstd.data);
    const bool runs = cols % run == 0 && cols <= Norm<float, centred, adds>::most_cols && aligned(x.data) &&
                      aligned(y.data) && aligned(gain.data) && aligned(bias.data) && aligned(residual.data) &&
                      aligned(sum.data);
    if (!runs) {
        const NormAny body{AnyIn(x, false),
                           AnyIn(residual, false),
                           AnyIn(adds ? In{sum.data, sum.type} : x, false),
                           AnyIn(gain, false),
                           AnyIn(bias, false),
                           AnyOut(sum, false),
                           AnyOut(y, false),
                           means,
                           scales,
                           cols,
                           static_cast<float>(eps)};
        return launch(call, rows, body, 32 * 4, any_threads(cols));
    }
    visit_float(x.type, [&]<class T>(T*) {
        using Body = Norm<T, centred, adds>;
        const Group group(cols, Body::held);
        const int block = group.size() < 128 ? 128 : group.size();
        const Body body{static_cast<const T*>(x.data),
                        static_cast<const T*>(residual.data),
                        static_cast<T*>(y.data),
                        static_cast<T*>(sum.data),
                        AnyIn(gain, true),
                        AnyIn(bias, true),
                        means,
                        scales,
                        rows,
                        static_cast<float>(eps),
                        static_cast<int>(cols),
                        group};
        launch(call, divide_up(rows, group.among(block)), body, 2 * 32 * 4, block);
    });
}

/// Inputs of a norm's gradient; mean and dsum may be absent.
struct NormGradIn {
    In x, gain, mean, rstd, dy, dsum;
};

/// Runs the gradient and returns its number of blocks, each of which has its sums.
template <bool centred, bool adds>
i64 norm_grad_runs(Call& call, const NormGradIn& in, Out dx, float* sums, i64 rows, i64 cols) {
    i64 blocks = 0;
    visit_float(in.x.type, [&]<class T>(T*) {
        using Body = NormGrad<T, centred, adds>;
        const Group group(cols, Body::held);
        int threads = Body::threads;  // fewer when few rows would leave multiprocessors idle
        while (threads > 128 && threads > group.size() && divide_up(rows, group.among(threads)) < call.multiprocessors)
            threads /= 2;
        const int per_block = group.among(threads);
        blocks = divide_up(rows, per_block);
        if (blocks > call.multiprocessors) blocks = call.multiprocessors;
        const Body body{static_cast<const T*>(in.x.data),
                        static_cast<const T*>(in.dy.data),
                        static_cast<const T*>(in.dsum.data),
                        static_cast<T*>(dx.data),
                        AnyIn(in.gain, true),
                        static_cast<const float*>(in.mean.data),
                        static_cast<const float*>(in.rstd.data),
                        sums,
                        rows,
                        static_cast<int>(cols),
                        group};
        launch(call, blocks, body, 256 + (per_block > 1 ? 2 * cols * 4 : 0), threads);
    });
    return blocks;
}

template <bool centred>
void norm_grad(Call& call, const NormGradIn& in, Out dx, Out dgain, Out dbias, i64 rows, i64 cols, bool accumulate) {
    const i64 all = (centred ? 2 : 1) * cols, most = static_cast<i64>(call.multiprocessors) * 2;
    i64 blocks = rows < most ? rows : most;
    float* sums = call.take_array<float>(blocks * all);  // the same size for all addresses
    const bool runs = cols % run == 0 && cols <= NormGrad<float, centred, false>::most_cols && aligned(in.x.data) &&
                      aligned(in.dy.data) && aligned(in.dsum.data) && aligned(dx.data) && aligned(in.gain.data);
    if (runs) {
        const auto go = in.dsum.data != nullptr ? norm_grad_runs<centred, true> : norm_grad_runs<centred, false>;
        blocks = go(call, in, dx, sums, rows, cols);
    } else {
        const NormGradAny body{AnyIn(in.x, false),
                               AnyIn(in.dy, false),
                               AnyIn(in.dsum, false),
                               AnyIn(in.gain, false),
                               AnyOut(dx, false),
                               static_cast<const float*>(in.mean.data),
                               static_cast<const float*>(in.rstd.data),
                               sums,
                               rows,
                               cols};
        launch(call, blocks, body, 32 * 4, any_threads(cols));
    }
    join_parts(call, Join::sum, sums, blocks, all, dgain, dbias, cols, accumulate);
}

void layernorm(kernels::Context& context, In x, In gain, In bias, In residual, Out y, Out mean, Out rstd, Out sum,
               i64 rows, i64 cols, double eps) {
    const auto go = residual.data != nullptr ? norm<true, true> : norm<true, false>;
    go(call_of(context), x, gain, bias, residual, y, mean, rstd, sum, rows, cols, eps);
}

void rmsnorm(kernels::Context& context, In x, In gain, In residual, Out y, Out rstd, Out sum, i64 rows, i64 cols,
             double eps) {
    const auto go = residual.data != nullptr ? norm<false, true> : norm<false, false>;
    go(call_of(context), x, gain, {}, residual, y, {}, rstd, sum, rows, cols, eps);
}

void layernorm_grad(kernels::Context& context, In x, In gain, In mean, In rstd, In dy, In dsum, Out dx, Out dgain,
                    Out dbias, i64 rows, i64 cols, bool accumulate) {
    norm_grad<true>(call_of(context), {x, gain, mean, rstd, dy, dsum}, dx, dgain, dbias, rows, cols, accumulate);
}

void rmsnorm_grad(kernels::Context& context, In x, In gain, In rstd, In dy, In dsum, Out dx, Out dgain, i64 rows,
                  i64 cols, bool accumulate) {
    norm_grad<false>(call_of(context), {x, gain, {}, rstd, dy, dsum}, dx, dgain, {}, rows, cols, accumulate);
}

}  // namespace

void add_norm(Kernels& k) {
    k.layernorm = layernorm;
    k.layernorm_grad = layernorm_grad;
    k.rmsnorm = rmsnorm;
    k.rmsnorm_grad = rmsnorm_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
