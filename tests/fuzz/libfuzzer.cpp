// The same targets under libFuzzer: FUZZ_TARGET names the one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "target.h"

namespace {

const orrery::fuzz::Target& chosen() {
    static const orrery::fuzz::Target target = [] {
        const char* const name = std::getenv("FUZZ_TARGET");
        for (const orrery::fuzz::Target& one : orrery::fuzz::targets())
            if (name && one.name == name) return one;
        std::fprintf(stderr, "FUZZ_TARGET: no such target\n");
        std::exit(2);
    }();
    return target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::clock_t begin = std::clock();
    chosen().run({reinterpret_cast<const char*>(data), size});
    if (std::clock() - begin > CLOCKS_PER_SEC)
        std::abort();  // of the processor: -timeout counts the machine's load, too
    return 0;
}
