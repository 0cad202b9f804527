#include "kernels/math.h"
#include "kernels/reference/values.h"

namespace orrery::kernels::reference {

namespace {

void adamw(Context&, const AdamW& s, Out p, In g, Out m, Out v, In lr, In scale, In step, const std::uint8_t* apply,
           i64 n) {
    if (apply != nullptr && *apply == 0) return;
    const auto constants =
        math::adamw_step<double>(s.beta1, s.beta2, s.eps, s.decay, read_one(lr), read_one(scale), read_one(step));
    Values ps = read(p, n), ms = read(m, n), vs = read(v, n);
    const Values gs = read(g, n);
    for (i64 i = 0; i < n; ++i) math::adamw(constants, ps[i], gs[i], ms[i], vs[i]);
    write(p, ps);
    write(m, ms);
    write(v, vs);
}

}  // namespace

void add_update(Kernels& k) { k.adamw = adamw; }

}  // namespace orrery::kernels::reference
