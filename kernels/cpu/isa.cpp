#include <cstdlib>
#include <string_view>

#include "kernels/kernels.h"

namespace orrery::kernels::cpu {

namespace portable {
const Kernels& table();
}
namespace avx2 {
const Kernels& table();
}
namespace avx512 {
const Kernels& table();
}

bool available(Isa isa) {
#ifdef ORRERY_X86
    switch (isa) {
        case Isa::portable: return true;
        case Isa::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
        case Isa::avx512:
            return available(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    }
#endif
    return isa == Isa::portable;
}

Isa isa() {
    static const Isa chosen = [] {
        Isa widest = available(Isa::avx512) ? Isa::avx512 : available(Isa::avx2) ? Isa::avx2 : Isa::portable;
        if (const char* asked = std::getenv("ORRERY_CPU_ISA")) {
            if (asked == std::string_view("portable")) widest = Isa::portable;
            if (asked == std::string_view("avx2") && widest == Isa::avx512) widest = Isa::avx2;
        }
        return widest;
    }();
    return chosen;
}

const Kernels& table(Isa isa) {
#ifdef ORRERY_X86
    if (isa == Isa::avx512) return avx512::table();
    if (isa == Isa::avx2) return avx2::table();
#endif
    static_cast<void>(isa);
    return portable::table();
}

}  // namespace orrery::kernels::cpu
