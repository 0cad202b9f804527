#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "kernels/types.h"

namespace orrery::kernels {

void Context::Free::operator()(void* p) const { std::free(p); }

void Context::lend(void* memory, std::int64_t bytes) {
    use_ = Use::lent;
    lent_ = memory;
    capacity_ = bytes;
    memory_.reset();
}

void* Context::scratch(std::int64_t bytes) {
    if (use_ == Use::count) throw Counted{bytes};
    if (use_ == Use::lent) {
        if (bytes > capacity_)
            throw std::length_error("a kernel needs " + std::to_string(bytes) + " bytes of scratch, but has only " +
                                    std::to_string(capacity_));
        return lent_;
    }
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
