#include "kernels/cpu/tile.h"

namespace orrery::kernels::cpu::ORRERY_ISA {

const Kernels& table();

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k = reference::table();
        add_elementwise(k);
        add_broadcast(k);
        add_matmul(k);
        add_attention(k);
        return k;
    }();
    return kernels;
}

}  // namespace orrery::kernels::cpu::ORRERY_ISA
