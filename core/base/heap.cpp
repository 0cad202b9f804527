#include "base/heap.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace orrery {

void give_back_free_pages() {
#ifdef __GLIBC__
    ::malloc_trim(0);
#endif
}

}  // namespace orrery
