#include "allocations.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}

namespace orrery::steps {
namespace {

constexpr int depth = 32;
constexpr size_t most_sites = 1024;

struct Site {
    void* frames[depth];
    int count;
    int64_t times, bytes;
};

// Nothing here may allocate.
Site sites[most_sites];
size_t used = 0;
int64_t unnoted = 0;  ///< of more sites than there is room for
std::atomic_flag busy;
std::atomic<bool> noting{false};
std::atomic<int64_t> in_use{0};
thread_local bool inside = false;  ///< looking for the caller may itself allocate

/// Inlined, so that frame 0 is malloc or its kin.
[[gnu::always_inline]] inline void* note(void* memory, size_t bytes) {
    if (!memory) return memory;
    in_use.fetch_add(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
    if (!noting.load(std::memory_order_relaxed) || inside) return memory;
    inside = true;
    void* frames[depth];
    const int count = ::backtrace(frames, depth);
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
    Site* const end = sites + used;
    Site* site = std::find_if(sites, end, [&](const Site& s) {
        return s.count == count && std::memcmp(s.frames, frames, sizeof(void*) * static_cast<size_t>(count)) == 0;
    });
    if (site == end && used < most_sites) {
        *site = {{}, count, 0, 0};
        std::memcpy(site->frames, frames, sizeof frames);
        ++used;
    }
    if (site < sites + used) {
        ++site->times;
        site->bytes += static_cast<int64_t>(bytes);
    } else {
        ++unnoted;
    }
    busy.clear(std::memory_order_release);
    inside = false;
    return memory;
}

void forget(void* memory) {
    if (memory) in_use.fetch_sub(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
}

std::string base_name(const char* path) {
    const std::string all = path ? path : "";
    return all.substr(all.rfind('/') + 1);
}

/// Frames that stand between whoever allocates and malloc.
bool is_library(const std::string& module, const char* symbol) {
    for (const char* name : {"libstdc++", "libc.so", "libgcc", "ld-linux"})
        if (module.rfind(name, 0) == 0) return true;
    const std::string s = symbol ? symbol : "";
    for (const char* begin : {"_ZNSt", "_ZNKSt", "_ZSt", "_Znwm", "_Znam", "_ZNS", "_ZN9__gnu_cxx"})
        if (s.rfind(begin, 0) == 0) return true;
    return false;
}

}  // namespace

void begin_noting() {
    void* warm[4];
    ::backtrace(warm, 4);  // loads the unwinder
    used = 0;
    unnoted = 0;
    noting.store(true);
}

void end_noting() { noting.store(false); }

std::map<std::string, Noted> noted() {
    std::map<std::string, Noted> all;
    Dl_info self{};
    ::dladdr(reinterpret_cast<void*>(&begin_noting), &self);
    for (size_t i = 0; i < used; ++i) {
        std::string module, text;
        for (int f = 1; f < sites[i].count; ++f) {
            Dl_info info{};
            const auto* at = static_cast<const char*>(sites[i].frames[f]) - 1;  // the call, not what follows it
            ::dladdr(at, &info);
            const bool own = info.dli_fbase == self.dli_fbase;
            const std::string in = own ? "core" : base_name(info.dli_fname);
            if (module.empty() && !is_library(in, info.dli_sname)) module = in;
            text += "\n    " + in + " " + (info.dli_sname ? info.dli_sname : "?");
        }
        Noted& by = all[module.empty() ? "nobody" : module];
        if (by.first.empty()) by.first = text;
        by.times += sites[i].times;
        by.bytes += sites[i].bytes;
    }
    if (unnoted > 0) all["more sites than there is room for"].times = unnoted;
    return all;
}

int64_t bytes_in_use() { return in_use.load(); }

}  // namespace orrery::steps

using orrery::steps::forget;
using orrery::steps::note;

#pragma GCC visibility push(default)  // libraries must find these first
extern "C" {

void* malloc(size_t bytes) noexcept { return note(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t bytes) noexcept { return note(__libc_calloc(count, bytes), count * bytes); }
void* realloc(void* memory, size_t bytes) noexcept {
    forget(memory);
    return note(__libc_realloc(memory, bytes), bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept { return note(__libc_memalign(alignment, bytes), bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return note(__libc_memalign(alignment, bytes), bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
    *memory = note(__libc_memalign(alignment, bytes), bytes);
    return *memory ? 0 : ENOMEM;
}
void free(void* memory) noexcept {
    forget(memory);
    __libc_free(memory);
}
}
#pragma GCC visibility pop
