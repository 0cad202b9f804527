// Layer norms: a row stays in the registers of 32 to 1024 threads between the statistics and the result.
#pragma once

#include <cmath>
#include <stdexcept>

#include "kernels/cuda/call.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr int held = 4;  ///< runs of a row that one thread holds

/// `group` threads work on one row; a block has several groups or is one.
struct Groups {
    int group, block;

    static constexpr i64 most_cols = 1024 * held * run;
    explicit Groups(i64 cols) : group(32) {
        while (group < 1024 && group * held * run < cols) group *= 2;
        block = group < 128 ? 128 : group;
        if (cols > most_cols) throw std::logic_error("a norm over more than 32768 columns");
    }
    int rows() const { return block / group; }
};

/// Over the threads of a group, the same bits in all; room: one float a warp.
ORRERY_DEVICE float group_sum(const Block& b, int group, float value, float* room) {
    value = b.sum(value, 32);
    if (group == 32) return value;
    b.sync();
    if (b.thread() % 32 == 0) room[b.thread() / 32] = value;
    b.sync();
    const int warps = group / 32, first = b.thread() / group * warps;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += room[first + w];
    return total;
}

/// y = (x - mean) rstd gain + bias; without `centred` mean is 0 and there is no bias.
template <class T, bool centred>
struct Norm {
    static constexpr int threads = 1024;
    static constexpr bool barriers = true;
    const T* x;
    T* y;
    AnyIn gain, bias;
    float *mean, *rstd;
    i64 rows, cols;
    float eps;
    int group;
    bool wide;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const int per_block = b.threads() / group, lane = b.thread() % group;
        const i64 row = b.index() * per_block + b.thread() / group;
        const bool mine = row < rows;
        float v[held][run], total = 0;
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const i64 c = (static_cast<i64>(k) * group + lane) * run;
            load_run(x + row * cols + c, mine ? cols - c : 0, wide, v[k]);
        }
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
            const i64 c = (static_cast<i64>(k) * group + lane) * run;
#pragma unroll
            for (int l = 0; l < run; ++l) {
                if (c + l < cols) square += (v[k][l] - middle) * (v[k][l] - middle);
            }
        }
        const float scale = 1.0f / sqrtf(group_sum(b, group, square, b.shared<float>()) * n + eps);
        if (!mine) return;
        if (lane == 0) {
            if (centred) mean[row] = middle;
            rstd[row] = scale;
        }
#pragma unroll
        for (int k = 0; k < held; ++k) {
            const i64 c = (static_cast<i64>(k) * group + lane) * run;
            if (c >= cols) break;
            float g[run], add[run] = {};
            gain.load(c, cols - c, g);
            if (centred) bias.load(c, cols - c, add);
#pragma unroll
            for (int l = 0; l < run; ++l) v[k][l] = (v[k][l] - middle) * scale * g[l] + add[l];
            store_run(y + row * cols + c, cols - c, wide, v[k]);
        }
    }
};

/// dx of each row, and for each block the sums over its rows that dgain and dbias are made of. `most` threads a block:
/// few leave each one more registers.
template <class T, bool centred, int most>
struct NormGrad {
    static constexpr int threads = most;
    static constexpr bool barriers = true;
    const T *x, *dy;
    T* dx;
    AnyIn gain;
    const float *mean, *rstd;
    float *dgain, *dbias;  ///< [blocks, cols]
    i64 rows, cols;
    int group;
    bool wide;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const int per_block = b.threads() / group, lane = b.thread() % group;
        const i64 mine = b.index() * per_block + b.thread() / group, groups = b.blocks() * per_block;
        float dg[held][run] = {}, db[centred ? held : 1][run] = {};
        const float n = 1.0f / static_cast<float>(cols);
        for (i64 from = 0; from < rows; from += groups) {  // the same number of rounds in all threads
            const i64 row = from + mine;
            const bool there = row < rows;
            float hat[held][run], d[held][run];
#pragma unroll
            for (int k = 0; k < held; ++k) {
                const i64 c = (static_cast<i64>(k) * group + lane) * run;
                load_run(x + row * cols + c, there ? cols - c : 0, wide, hat[k]);
                load_run(dy + row * cols + c, there ? cols - c : 0, wide, d[k]);
            }
            const float middle = there && centred ? mean[row] : 0.0f, scale = there ? rstd[row] : 0.0f;
            float sum = 0, dot = 0;
#pragma unroll
            for (int k = 0; k < held; ++k) {
                const i64 c = (static_cast<i64>(k) * group + lane) * run;
                float g[run] = {};
                if (c < cols) gain.load(c, cols - c, g);
#pragma unroll
                for (int l = 0; l < run; ++l) {
                    hat[k][l] = (hat[k][l] - middle) * scale;
                    dg[k][l] += d[k][l] * hat[k][l];
                    if (centred) db[centred ? k : 0][l] += d[k][l];
                    d[k][l] *= g[l];  // 0 behind the last column
                    sum += d[k][l];
                    dot += d[k][l] * hat[k][l];
                }
            }
            if (centred) sum = group_sum(b, group, sum, b.shared<float>()) * n;
            dot = group_sum(b, group, dot, b.shared<float>()) * n;
            if (!centred) sum = 0;
#pragma unroll
            for (int k = 0; k < held; ++k) {
                const i64 c = (static_cast<i64>(k) * group + lane) * run;
                if (!there || c >= cols) break;
#pragma unroll
                for (int l = 0; l < run; ++l) d[k][l] = scale * (d[k][l] - sum - hat[k][l] * dot);
                store_run(dx + row * cols + c, cols - c, wide, d[k]);
            }
        }
        add_groups(b, dg, dgain + b.index() * cols, 0);
        if (centred) add_groups(b, db, dbias + b.index() * cols, cols);
    }

    /// to = the sum of what the groups of the block hold, in their order. from: which part of shared memory.
    template <int n>
    ORRERY_DEVICE void add_groups(const Block& b, const float (&held_sums)[n][run], float* to, i64 from) const {
        const int per_block = b.threads() / group, lane = b.thread() % group, own = b.thread() / group;
        float* sums = b.shared<float>(128) + from;
        for (int g = 0; g < per_block; ++g) {
            if (g > 0) b.sync();
            if (g != own) continue;
#pragma unroll
            for (int k = 0; k < n; ++k) {
                const i64 c = (static_cast<i64>(k) * group + lane) * run;
#pragma unroll
                for (int l = 0; l < run; ++l) {
                    if (c + l >= cols) continue;
                    const float sum = (g > 0 ? sums[c + l] : 0.0f) + held_sums[k][l];
                    (g == per_block - 1 ? to : sums)[c + l] = sum;
                }
            }
        }
    }
};

template <class T, bool centred, int most>
void norm_grad_of(Call& call, const Groups& g, In x, In gain, In mean, In rstd, In dy, Out dx, float* sums,
                  float* bias_sums, i64 blocks, i64 rows, i64 cols) {
    const bool wide = aligned_rows(x.data, x.type, cols) && aligned(dy.data) && aligned(dx.data);
    const NormGrad<T, centred, most> body{static_cast<const T*>(x.data),
                                          static_cast<const T*>(dy.data),
                                          static_cast<T*>(dx.data),
                                          AnyIn(gain, aligned(gain.data)),
                                          static_cast<const float*>(mean.data),
                                          static_cast<const float*>(rstd.data),
                                          sums,
                                          bias_sums,
                                          rows,
                                          cols,
                                          g.group,
                                          wide};
    launch(call, blocks, body, 128 + (g.rows() > 1 ? 2 * cols * 4 : 0), g.block);
}

template <bool centred>
void norm(Call& call, In x, In gain, In bias, Out y, Out mean, Out rstd, i64 rows, i64 cols, double eps) {
    const Groups g(cols);
    visit_float(x.type, [&]<class T>(T*) {
        const Norm<T, centred> body{static_cast<const T*>(x.data),
                                    static_cast<T*>(y.data),
                                    AnyIn(gain, aligned(gain.data)),
                                    AnyIn(bias, aligned(bias.data)),
                                    static_cast<float*>(mean.data),
                                    static_cast<float*>(rstd.data),
                                    rows,
                                    cols,
                                    static_cast<float>(eps),
                                    g.group,
                                    aligned_rows(x.data, x.type, cols) && aligned(y.data)};
        launch(call, divide_up(rows, g.rows()), body, 32 * 4, g.block);
    });
}

template <bool centred>
void norm_grad(Call& call, In x, In gain, In mean, In rstd, In dy, Out dx, Out dgain, Out dbias, i64 rows, i64 cols,
               bool accumulate) {
    const Groups g(cols);
    i64 blocks = static_cast<i64>(call.multiprocessors) * (g.block <= 256 ? 1024 / g.block / 2 : 1);
    blocks = blocks < divide_up(rows, g.rows()) ? blocks : divide_up(rows, g.rows());
    if (blocks < 1) blocks = 1;
    float* sums = call.take_array<float>(blocks * cols);
    float* bias_sums = centred ? call.take_array<float>(blocks * cols) : nullptr;
    visit_float(x.type, [&]<class T>(T*) {
        const auto run_it = g.block <= 256 ? norm_grad_of<T, centred, 256> : norm_grad_of<T, centred, 1024>;
        run_it(call, g, x, gain, mean, rstd, dy, dx, sums, bias_sums, blocks, rows, cols);
    });
    reduce_columns(call, Join::sum, In(sums, Type::f32), dgain, 1, blocks, cols, accumulate);
    if (centred) reduce_columns(call, Join::sum, In(bias_sums, Type::f32), dbias, 1, blocks, cols, accumulate);
}

void layernorm(kernels::Context& context, In x, In gain, In bias, Out y, Out mean, Out rstd, i64 rows, i64 cols,
               double eps) {
    norm<true>(call_of(context), x, gain, bias, y, mean, rstd, rows, cols, eps);
}

void rmsnorm(kernels::Context& context, In x, In gain, Out y, Out rstd, i64 rows, i64 cols, double eps) {
    norm<false>(call_of(context), x, gain, {}, y, {}, rstd, rows, cols, eps);
}

void layernorm_grad(kernels::Context& context, In x, In gain, In mean, In rstd, In dy, Out dx, Out dgain, Out dbias,
                    i64 rows, i64 cols, bool accumulate) {
    norm_grad<true>(call_of(context), x, gain, mean, rstd, dy, dx, dgain, dbias, rows, cols, accumulate);
}

void rmsnorm_grad(kernels::Context& context, In x, In gain, In rstd, In dy, Out dx, Out dgain, i64 rows, i64 cols,
                  bool accumulate) {
    norm_grad<false>(call_of(context), x, gain, {}, rstd, dy, dx, dgain, {}, rows, cols, accumulate);
}

}  // namespace

void add_norm(Kernels& k) {
    k.layernorm = layernorm;
    k.layernorm_grad = layernorm_grad;
    k.rmsnorm = rmsnorm;
    k.rmsnorm_grad = rmsnorm_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
