#include "standin/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace orrery::standin {

namespace {

struct Table {
    std::mutex mutex;
    std::map<const char*, Allocation> all;  ///< by address
    std::array<size_t, gpus> used{};
};

/// Never destroyed: threads of streams may outlive main().
Table& table() {
    static Table& one = *new Table;
    return one;
}

size_t pages(size_t bytes) { return (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096; }

char* map(size_t bytes, int access) {
    void* const data = ::mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
}

}  // namespace

cudaError_t allocate(cudaMemoryType type, int device, size_t bytes, void** data) {
    Table& t = table();
    const size_t size = pages(bytes);
    const bool on_gpu = type == cudaMemoryTypeDevice;
    const std::lock_guard lock(t.mutex);
    size_t& used = t.used[static_cast<size_t>(device)];
    if (on_gpu && (bytes > gpu_bytes || used + size > gpu_bytes)) return cudaErrorMemoryAllocation;
    if (bytes > size_t{1} << 40) return cudaErrorMemoryAllocation;
    Allocation made{nullptr, map(size, PROT_READ | PROT_WRITE), bytes, type, device};
    made.at = on_gpu && made.kept ? map(size, PROT_NONE) : made.kept;
    if (!made.at) {
        if (made.kept) ::munmap(made.kept, size);
        return cudaErrorMemoryAllocation;
    }
    std::memset(made.kept, 0xff, std::min(size, size_t{on_gpu ? 16u : 1u} << 20));
    if (on_gpu) used += size;
    t.all[made.at] = made;
    *data = made.at;
    return cudaSuccess;
}

bool release(cudaMemoryType type, void* data) {
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    const auto found = t.all.find(static_cast<char*>(data));
    if (found == t.all.end() || found->second.type != type) return false;
    const Allocation& gone = found->second;
    const size_t size = pages(gone.bytes);
    ::munmap(gone.kept, size);
    if (gone.at != gone.kept) {
        ::munmap(gone.at, size);
        t.used[static_cast<size_t>(gone.device)] -= size;
    }
    t.all.erase(found);
    return true;
}

Allocation allocation_of(const void* data) {
    Table& t = table();
    const auto* const address = static_cast<const char*>(data);
    const std::lock_guard lock(t.mutex);
    auto after = t.all.upper_bound(address);
    if (after == t.all.begin()) return {};
    const Allocation& found = std::prev(after)->second;
    // One past the end is where an empty tensor may lie.
    return address <= found.at + found.bytes ? found : Allocation{};
}

size_t bytes_in_use(int device) {
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    return t.used[static_cast<size_t>(device)];
}

void* kept(const void* data, size_t bytes) {
    if (!data) return nullptr;
    const Allocation found = allocation_of(data);
    if (found.type == cudaMemoryTypeUnregistered)
        throw KernelFault(cudaErrorIllegalAddress, "a GPU is given memory of the host that it cannot reach");
    const size_t from = static_cast<size_t>(static_cast<const char*>(data) - found.at);
    if (bytes > found.bytes - from)
        throw KernelFault(cudaErrorIllegalAddress,
                          std::to_string(bytes) + " bytes reach over the end of an allocation");
    return found.kept + from;
}

}  // namespace orrery::standin
