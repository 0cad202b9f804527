// Attention by the kernels of this folder, as a launch.
#include "kernels/cuda/own_attention.h"

namespace orrery::kernels::ORRERY_BLOCKS {

Launch own_attention(const Attention& s) {
    return [s](Call& c, Operands t) {
        const size_t y = t.size() - 2;
        table().attention(c, s, in(t[0]), in(t[1]), in(t[2]), rules::index_of(s, t, 3), out(t[y]), out(t[y + 1]));
    };
}

Launch own_attention_grad(const Attention& s) {
    return [s](Call& c, Operands t) {
        const size_t y = t.size() - 3;
        table().attention_grad(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]),
                               rules::index_of(s, t, 6), rules::d_lse_of(s, t), out(t[y]), out(t[y + 1]),
                               out(t[y + 2]));
    };
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
