#include "kernels/cpu/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace orrery::kernels::cpu {

void run_team(int parts, void (*run)(void* arg, int part), void* arg) {
#ifdef _OPENMP
#pragma omp parallel num_threads(parts)
    for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) run(arg, part);
#else
    for (int part = 0; part < parts; ++part) run(arg, part);
#endif
}

}  // namespace orrery::kernels::cpu
