// Arenas of the CPU device.
#pragma once

#include <utility>
#include <vector>

#include "orrery/device.h"

namespace orrery::cpu_device {

/// Page-aligned anonymous memory (device, pinned), or a memfd that other processes map by its /proc path (shared).
/// All of it is zero at first and asks for huge pages. Frees what is left when it is destroyed.
class Arenas {
public:
    Arenas() = default;
    Arenas(const Arenas&) = delete;
    Arenas& operator=(const Arenas&) = delete;
    ~Arenas();

    Memory allocate(int64_t bytes, MemoryKind kind);
    void release(Memory& memory);

private:
    struct Mapping {
        void* data;
        int64_t bytes;
        int file;  ///< -1: anonymous
    };
    static void unmap(const Mapping& mapping);
    std::vector<Mapping> mappings_;
};

/// Bytes that the kernel says can still be had, and those installed.
int64_t memory_available();
int64_t memory_total();

}  // namespace orrery::cpu_device
