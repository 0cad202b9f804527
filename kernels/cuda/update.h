// AdamW over many tensors at once.
#pragma once

#include "kernels/cuda/run.h"
#include "kernels/cuda/updates.h"
#include "kernels/math.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr int updates_a_launch = 32;         // kernel parameters are limited to 4 KiB
constexpr i64 update_chunk = 256 * run * 4;  // elements of a block, a multiple of those in one round

struct Updates {
    static constexpr int threads = 256;
    static constexpr bool barriers = true;
    struct Tensor {
        AdamW constants;
        float *p, *m, *v;
        AnyIn g;
        const float *lr, *scale, *step;
        const std::uint8_t* apply;
        i64 n, first_block;
    };
    Tensor tensors[updates_a_launch];
    int count;

    ORRERY_DEVICE void operator()(const Block& b) const {
        int which = 0;
        while (which + 1 < count && tensors[which + 1].first_block <= b.index()) ++which;
        const Tensor& t = tensors[which];
        if (t.apply != nullptr && *t.apply == 0) return;  // the same for all threads of the block
        const i64 first = (b.index() - t.first_block) * update_chunk;
        const i64 end = first + update_chunk < t.n ? first + update_chunk : t.n;
        i64 i = first + b.thread() * quad;
        Quad x[2];
        // in flight while powers of beta are computed
        for (int k = 0; k < 2; ++k) x[k].fetch(t, i + k * quad * threads, end);
        auto* step = b.shared<math::AdamWStep<float>>();
        if (b.thread() == 0) {
            const AdamW& c = t.constants;
            *step = math::adamw_step<float>(c.beta1, c.beta2, c.eps, c.decay, *t.lr, *t.scale, *t.step);
        }
        b.sync();
        const math::AdamWStep<float> constants = *step;
        for (; i < end; i += 2 * quad * threads) {
#pragma unroll
            for (int k = 0; k < 2; ++k) x[k].update(t, i + k * quad * threads, end, constants);
#pragma unroll
            for (int k = 0; k < 2; ++k) x[k].fetch(t, i + (2 + k) * quad * threads, end);
        }
    }

    /// Four elements as stored in memory: adjacent threads have adjacent ones, so no sector is written twice.
    static constexpr int quad = 4;
    struct Quad {
        Words p, g, g_short, m, v;

        ORRERY_DEVICE static bool whole(const Tensor& t, i64 i, i64 end) { return t.g.wide && i + quad <= end; }
        ORRERY_DEVICE void fetch(const Tensor& t, i64 i, i64 end) {
            const bool there = whole(t, i, end), four = t.g.type == Type::f32;
            const auto* slope = static_cast<const unsigned char*>(t.g.data) + i * (four ? 4 : 2);
            p = load16(t.p + i, there);
            g = load16(slope, there && four);
            g_short = load8(slope, there && !four);
            m = load16(t.m + i, there);
            v = load16(t.v + i, there);
        }
        /// Reads and writes single elements when the quad is incomplete or unaligned.
        ORRERY_DEVICE void update(const Tensor& t, i64 i, i64 end, const math::AdamWStep<float>& constants) {
            if (!whole(t, i, end)) {
#pragma unroll 1
                for (i64 j = i; j < i + quad && j < end; ++j) math::adamw(constants, t.p[j], t.g.at(j), t.m[j], t.v[j]);
                return;
            }
#pragma unroll
            for (int l = 0; l < quad; ++l) {
                auto new_p = std::bit_cast<float>(p.w[l]), new_m = std::bit_cast<float>(m.w[l]);
                auto new_v = std::bit_cast<float>(v.w[l]);
                math::adamw(constants, new_p, slope_at(t.g.type, l), new_m, new_v);
                p.w[l] = std::bit_cast<std::uint32_t>(new_p);
                m.w[l] = std::bit_cast<std::uint32_t>(new_m);
                v.w[l] = std::bit_cast<std::uint32_t>(new_v);
            }
            store16(t.p + i, p);
            store16(t.m + i, m);
            store16(t.v + i, v);
        }
        ORRERY_DEVICE float slope_at(Type type, int l) const {
            const auto half = static_cast<std::uint16_t>(g_short.w[l / 2] >> l % 2 * 16);
            return type == Type::f32    ? std::bit_cast<float>(g.w[l])
                   : type == Type::bf16 ? widen(bf16{half})
                                        : widen(f16{half});
        }
    };
};
static_assert(sizeof(Updates) <= 4096);

}  // namespace

void adamw_all(Call& call, std::span<const Update> updates) {
    Updates body{};
    i64 blocks = 0;
    const auto flush = [&] {
        launch(call, blocks, body, 64);
        body.count = 0;
        blocks = 0;
    };
    for (const Update& u : updates) {
        if (u.n == 0) continue;
        if (body.count == updates_a_launch) flush();
        const bool wide = aligned(u.p) && aligned(u.m) && aligned(u.v) && aligned(u.g.data);
        body.tensors[body.count++] = {u.constants, u.p,     u.m, u.v,   AnyIn(u.g, wide), u.lr, u.scale,
                                      u.step,      u.apply, u.n, blocks};
        blocks += divide_up(u.n, update_chunk);
    }
    flush();
}

namespace {

void adamw(kernels::Context& context, const AdamW& s, Out p, In g, Out m, Out v, In lr, In scale, In step,
           const std::uint8_t* apply, i64 n) {
    const auto scalar = [](In x) { return static_cast<const float*>(x.data); };
    const Update update{s,
                        static_cast<float*>(p.data),
                        static_cast<float*>(m.data),
                        static_cast<float*>(v.data),
                        g,
                        scalar(lr),
                        scalar(scale),
                        scalar(step),
                        apply,
                        n};
    adamw_all(call_of(context), {&update, 1});
}

}  // namespace

void add_update(Kernels& k) { k.adamw = adamw; }

}  // namespace orrery::kernels::ORRERY_BLOCKS
