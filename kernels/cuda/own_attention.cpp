// Attention by the kernels of this folder, as a launch.
#include "kernels/cuda/own_attention.h"

namespace orrery::kernels::ORRERY_BLOCKS {

Launch own_attention(const Attention& s) {
    return
        [s](Call& c, Operands t) { table().attention(c, s, in(t[0]), in(t[1]), in(t[2]), {}, out(t[3]), out(t[4])); };
}

Launch own_attention_grad(const Attention& s) {
    return [s](Call& c, Operands t) {
        table().attention_grad(c, s, in(t[0]), in(t[1]), in(t[2]), in(t[3]), in(t[4]), in(t[5]), {}, {}, out(t[6]),
                               out(t[7]), out(t[8]));
    };
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
