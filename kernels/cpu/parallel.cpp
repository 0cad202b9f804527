#include "kernels/cpu/parallel.h"

#include <exception>
#include <mutex>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace orrery::kernels::cpu {

void run_team(int parts, void (*run)(void* arg, int part), void* arg) {
#ifdef _OPENMP
    std::exception_ptr failure;  // an exception may not leave the parallel region
    std::mutex mutex;
#pragma omp parallel num_threads(parts)
    try {
        for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) run(arg, part);
    } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
#else
    for (int part = 0; part < parts; ++part) run(arg, part);
#endif
}

}  // namespace orrery::kernels::cpu
