// AdamW over many tensors at once.
#pragma once

#include "kernels/cuda/run.h"
#include "kernels/cuda/updates.h"
#include "kernels/math.h"

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr int updates_a_launch = 32;         // parameters of a kernel are 4 KiB at most
constexpr i64 update_chunk = 256 * run * 4;  // elements of a block

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
        if (t.apply != nullptr && *t.apply == 0) return;  // all threads of the block alike
        auto* step = b.shared<math::AdamWStep<float>>();
        if (b.thread() == 0) {
            const AdamW& c = t.constants;
            *step = math::adamw_step<float>(c.beta1, c.beta2, c.eps, c.decay, *t.lr, *t.scale, *t.step);
        }
        b.sync();
        const math::AdamWStep<float> constants = *step;
        const i64 first = (b.index() - t.first_block) * update_chunk;
        const i64 end = first + update_chunk < t.n ? first + update_chunk : t.n;
        for (i64 i = first + b.thread() * run; i < end; i += threads * run) {
            float p[run], g[run], m[run], v[run];
            load_run(t.p + i, end - i, t.g.wide, p);
            t.g.load(i, end - i, g);
            load_run(t.m + i, end - i, t.g.wide, m);
            load_run(t.v + i, end - i, t.g.wide, v);
#pragma unroll
            for (int l = 0; l < run; ++l) math::adamw(constants, p[l], g[l], m[l], v[l]);
            store_run(t.p + i, end - i, t.g.wide, p);
            store_run(t.m + i, end - i, t.g.wide, m);
            store_run(t.v + i, end - i, t.g.wide, v);
        }
    }
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
