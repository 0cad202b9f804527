#include "run/train/heap.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <dlfcn.h>
#include <malloc.h>
#endif

namespace orrery {

void give_back_free_pages() {
#ifdef __GLIBC__
    // Where another library's malloc stands in front of glibc's (a sanitizer's, jemalloc), that is not to be woken: it
    // counts threads that it has never seen, and aborts when they end.
    Dl_info of_malloc{}, of_trim{};
    if (::dladdr(reinterpret_cast<void*>(&std::malloc), &of_malloc) == 0 ||
        ::dladdr(reinterpret_cast<void*>(&::malloc_trim), &of_trim) == 0 || of_malloc.dli_fbase != of_trim.dli_fbase)
        return;
    ::malloc_trim(0);
#endif
}

}  // namespace orrery
