// Layer norms for any number of columns at any address, element by element; norm.h has the fast ones.
#pragma once

#include <cmath>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

/// y = (x - mean) rstd gain + bias; mean and bias may be absent. A block a row, which is read three times. With a
/// residual, x is the sum; each thread reads what it wrote itself.
struct NormAny {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    AnyIn first, residual, x, gain, bias;
    AnyOut sum, y;
    float *mean, *rstd;
    i64 cols;
    float eps;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const i64 at = b.index() * cols;
        const float n = 1.0f / static_cast<float>(cols);
        float middle = 0, square = 0;
        if (!residual.absent()) {
            for (i64 c = b.thread(); c < cols; c += b.threads())
                sum.put(at + c, first.at(at + c) + residual.at(at + c));
        }
        if (mean != nullptr) {
            for (i64 c = b.thread(); c < cols; c += b.threads()) middle += x.at(at + c);
            middle = block_sum(b, middle, b.shared<float>()) * n;
        }
        for (i64 c = b.thread(); c < cols; c += b.threads()) {
            const float v = x.at(at + c) - middle;
            square += v * v;
        }
        const float scale = 1.0f / sqrtf(block_sum(b, square, b.shared<float>()) * n + eps);
        if (b.thread() == 0) {
            if (mean != nullptr) mean[b.index()] = middle;
            rstd[b.index()] = scale;
        }
        for (i64 c = b.thread(); c < cols; c += b.threads()) {
            const float add = bias.absent() ? 0.0f : bias.at(c);
            y.put(at + c, (x.at(at + c) - middle) * scale * gain.at(c) + add);
        }
    }
};

/// dx, plus dsum if present, and the sums for dgain and dbias. A block a row.
struct NormGradAny {
    static constexpr int threads = 512;
    static constexpr bool barriers = true;
    AnyIn x, dy, dsum, gain;
    AnyOut dx;
    const float *mean, *rstd;
    float* sums;  ///< [blocks, dgain and dbias, cols]
    i64 rows, cols;
    ORRERY_DEVICE void operator()(const Block& b) const {
        const bool centred = mean != nullptr;
        float* dgain = sums + b.index() * (centred ? 2 : 1) * cols;
        const float n = 1.0f / static_cast<float>(cols);
        for (i64 row = b.index(); row < rows; row += b.blocks()) {
            const i64 at = row * cols;
            const float middle = centred ? mean[row] : 0.0f, scale = rstd[row];
            const bool first = row == b.index();
            float sum = 0, dot = 0;
            for (i64 c = b.thread(); c < cols; c += b.threads()) {
                const float hat = (x.at(at + c) - middle) * scale, d = dy.at(at + c), by_gain = d * gain.at(c);
                dgain[c] = (first ? 0.0f : dgain[c]) + d * hat;
                if (centred) dgain[cols + c] = (first ? 0.0f : dgain[cols + c]) + d;
                sum += by_gain;
                dot += by_gain * hat;
            }
            sum = centred ? block_sum(b, sum, b.shared<float>()) * n : 0.0f;
            dot = block_sum(b, dot, b.shared<float>()) * n;
            for (i64 c = b.thread(); c < cols; c += b.threads()) {
                const float hat = (x.at(at + c) - middle) * scale;
                const float own = scale * (dy.at(at + c) * gain.at(c) - sum - hat * dot);
                dx.put(at + c, dsum.absent() ? own : with_sum(own, at + c));
            }
        }
    }

    ORRERY_DEVICE float with_sum(float own, i64 i) const {
        switch (dx.type) {
            case Type::bf16: return add_rounded(own, dsum.at(i), bf16{});
            case Type::f16: return add_rounded(own, dsum.at(i), f16{});
            default: return add_rounded(own, dsum.at(i), 0.0f);
        }
    }
};

int any_threads(i64 cols) { return cols >= 2048 ? 512 : cols >= 512 ? 128 : 32; }

}  // namespace

}  // namespace orrery::kernels::ORRERY_BLOCKS
