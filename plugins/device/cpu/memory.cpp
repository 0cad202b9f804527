#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace orrery::cpu_device {

namespace {

int64_t meminfo(const std::string& wanted) {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    for (int64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
        if (key == wanted) return kib * 1024;
    }
    return 0;
}

[[noreturn]] void refuse(int64_t bytes, const std::string& why) {
    throw Error("device cpu: cannot allocate " + std::to_string(bytes) + " bytes: " + why + "; " +
                    std::to_string(memory_available()) +
                    " bytes are available; use fewer ranks here, a smaller batch "
                    "or more micro-batches",
                Fault::failed);
}

}  // namespace

int64_t memory_available() { return meminfo("MemAvailable:"); }
int64_t memory_total() { return meminfo("MemTotal:"); }

Memory Arenas::allocate(int64_t bytes, MemoryKind kind) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t size = std::max<int64_t>((bytes + page - 1) / page, 1) * page;
    // Linux promises more than it has and kills later, so ask first.
    if (const int64_t available = memory_available(); available > 0 && size > available) refuse(bytes, "out of memory");
    int file = -1;
    if (kind == MemoryKind::shared) {
        file = memfd_create("orrery", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, size) != 0) {
            const std::string why = std::strerror(errno);
            if (file >= 0) close(file);
            refuse(bytes, why);
        }
    }
    void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                      file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (data == MAP_FAILED) {
        const std::string why = std::strerror(errno);
        if (file >= 0) close(file);
        refuse(bytes, why);
    }
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // a hint: refusal costs speed only
    mappings_.push_back({data, size, file});
    std::string handle;
    if (file >= 0) handle = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
    return {data, bytes, kind, handle};
}

void Arenas::unmap(const Mapping& mapping) {
    munmap(mapping.data, static_cast<size_t>(mapping.bytes));
    if (mapping.file >= 0) close(mapping.file);
}

void Arenas::release(Memory& memory) {
    const auto at =
        std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) { return m.data == memory.data; });
    if (at == mappings_.end()) return;
    unmap(*at);
    mappings_.erase(at);
    memory = {};
}

Arenas::~Arenas() {
    for (const Mapping& mapping : mappings_) unmap(mapping);
}

}  // namespace orrery::cpu_device
