#include <cstdlib>
#include <new>

#include "kernels/types.h"

namespace orrery::kernels {

void Context::Free::operator()(void* p) const { std::free(p); }

void* Context::scratch(std::int64_t bytes) {
    if (bytes > capacity_) {
        const std::int64_t rounded = (bytes + 4095) / 4096 * 4096;
        memory_.reset();
        capacity_ = 0;
        memory_.reset(std::aligned_alloc(4096, static_cast<std::size_t>(rounded)));
        if (!memory_) throw std::bad_alloc();
        capacity_ = rounded;
    }
    return memory_.get();
}

}  // namespace orrery::kernels
