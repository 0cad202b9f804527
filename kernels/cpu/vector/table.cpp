#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

const Kernels& table();

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k{};
        add_elementwise(k);
        add_broadcast(k);
        add_matmul(k);
        add_grouped_matmul(k);
        add_attention(k);
        add_random(k);
        add_reduce(k);
        add_norm(k);
        add_tokens(k);
        add_index(k);
        add_dispatch(k);
        add_codes(k);
        add_update(k);
        add_layout(k);
        return k;
    }();
    return kernels;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
