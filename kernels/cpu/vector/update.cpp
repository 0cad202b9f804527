// The optimizer: one pass over parameter, gradient and both moments.
#include "kernels/math.h"

#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

namespace {

void adamw(Context& c, const AdamW& s, Out p, In g, Out m, Out v, In lr, In scale, In step, const std::uint8_t* apply,
           i64 n) {
    if (apply != nullptr && *apply == 0) return;
    const auto k = math::adamw_step<Vec>(s.beta1, s.beta2, s.eps, s.decay, scalar(lr), scalar(scale), scalar(step));
    parallel(c.threads(), n, grain, 64, [&](i64 begin, i64 end) {
        float buffer[tile];
        for (i64 at = begin; at < end; at += tile) {
            const i64 size = end - at < tile ? end - at : tile;
            const float* gs = fetch(g, at, size, buffer);
            float *ps = p.as<float>() + at, *ms = m.as<float>() + at, *vs = v.as<float>() + at;
            i64 i = 0;
            for (; i + width <= size; i += width) {
                Vec pv = load(ps + i), mv = load(ms + i), vv = load(vs + i);
                math::adamw(k, pv, load(gs + i), mv, vv);
                store(pv, ps + i);
                store(mv, ms + i);
                store(vv, vs + i);
            }
            if (const i64 left = size - i; left > 0) {
                Vec pv = load(ps + i, left), mv = load(ms + i, left), vv = load(vs + i, left);
                math::adamw(k, pv, load(gs + i, left), mv, vv);
                store(pv, ps + i, left);
                store(mv, ms + i, left);
                store(vv, vs + i, left);
            }
        }
    });
}

}  // namespace

void add_update(Kernels& k) { k.adamw = adamw; }

}  // namespace orrery::kernels::cpu::ORRERY_ISA
