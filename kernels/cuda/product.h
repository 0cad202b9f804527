// A tiled f32 matrix product of our own: for what cuBLASLt does not offer, and for all products of the emulated build.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"
#include "kernels/math.h"
#include "kernels/rules/epilogue.h"

namespace orrery::kernels::ORRERY_BLOCKS {

using rules::Epilogue;

namespace {

/// A y tile of 64 x 64 for a block of 16 x 16 threads, 16 of k at a time.
struct Product {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    static constexpr int side = 64, depth = 16;
    Matmul s;
    AnyIn a, b, bias, slope_at;  // slope_at: multiplies by the slope of the epilogue's gelu at this value
    AnyOut y, pre;
    Epilogue epilogue;
    i64 tiles_m, tiles_n;
    ORRERY_DEVICE void operator()(const Block& block) const {
        const i64 tile_n = block.index() % tiles_n * side, tile_m = block.index() / tiles_n % tiles_m * side;
        const i64 batch = block.index() / tiles_n / tiles_m;
        const i64 a_at = batch * s.m * s.k, b_at = s.shared_b ? 0 : batch * s.k * s.n;
        auto* left = block.shared<float>();        // [depth, side + 1]
        float* right = left + depth * (side + 1);  // [depth, side + 1]
        const int row = block.thread() / 16 * 4, col = block.thread() % 16;
        float sum[4][4] = {};
        for (i64 from = 0; from < s.k; from += depth) {
            block.sync();
            for (int i = block.thread(); i < side * depth; i += threads) {
                // Adjacent threads read adjacent elements.
                const int ka = s.trans_a ? i / side : i % depth, m = s.trans_a ? i % side : i / depth;
                const int kb = s.trans_b ? i % depth : i / side, n = s.trans_b ? i / depth : i % side;
                const i64 la = from + ka, lb = from + kb, r = tile_m + m, c = tile_n + n;
                left[ka * (side + 1) + m] =
                    la < s.k && r < s.m ? a.at(a_at + (s.trans_a ? la * s.m + r : r * s.k + la)) : 0.0f;
                right[kb * (side + 1) + n] =
                    lb < s.k && c < s.n ? b.at(b_at + (s.trans_b ? c * s.k + lb : lb * s.n + c)) : 0.0f;
            }
            block.sync();
            for (int k = 0; k < depth; ++k) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        sum[i][j] += left[k * (side + 1) + row + i] * right[k * (side + 1) + col + j * 16];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) put(batch, tile_m + row + i, tile_n + col + j * 16, sum[i][j]);
        }
    }
    ORRERY_DEVICE void put(i64 batch, i64 r, i64 c, float v) const {
        if (r >= s.m || c >= s.n) return;
        const i64 at = (batch * s.m + r) * s.n + c;
        if (!bias.absent()) v += bias.at(c);
        if (!slope_at.absent()) {
            const float x = slope_at.at(at);
            v *= epilogue == Epilogue::gelu_erf ? math::gelu_erf_slope(x) : math::gelu_tanh_slope(x);
        } else if (epilogue != Epilogue::none) {
            if (!pre.absent()) pre.put(at, v);
            v = epilogue == Epilogue::gelu_erf ? math::gelu_erf(v) : math::gelu_tanh(v);
        }
        y.put(at, v, s.accumulate);
    }
};

void product(Call& call, const Matmul& s, Epilogue epilogue, In a, In b, In bias, Out y, Out pre, In slope_at = {}) {
    const i64 tiles_m = divide_up(s.m, Product::side), tiles_n = divide_up(s.n, Product::side);
    const Product body{s,
                       AnyIn(a, false),
                       AnyIn(b, false),
                       AnyIn(bias, false),
                       AnyIn(slope_at, false),
                       AnyOut(y, false),
                       AnyOut(pre, false),
                       epilogue,
                       tiles_m,
                       tiles_n};
    launch(call, s.batch * tiles_m * tiles_n, body, 2 * Product::depth * (Product::side + 1) * 4);
}

void matmul(kernels::Context& context, const Matmul& s, In a, In b, In bias, Out y) {
    product(call_of(context), s, Epilogue::none, a, b, bias, y, {});
}

void matmul_bias_gelu(kernels::Context& context, const Matmul& s, Unary op, In a, In b, In bias, Out y, Out pre) {
    product(call_of(context), s, op == Unary::gelu_erf ? Epilogue::gelu_erf : Epilogue::gelu_tanh, a, b, bias, y, pre);
}

void matmul_gelu_grad(kernels::Context& context, const Matmul& s, UnaryGrad op, In a, In b, In pre, Out dx) {
    const Epilogue gelu = op == UnaryGrad::gelu_erf ? Epilogue::gelu_erf : Epilogue::gelu_tanh;
    product(call_of(context), s, gelu, a, b, {}, dx, {}, pre);
}

}  // namespace

void add_product(Kernels& k) {
    k.matmul = matmul;
    k.matmul_bias_gelu = matmul_bias_gelu;
    k.matmul_gelu_grad = matmul_gelu_grad;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
