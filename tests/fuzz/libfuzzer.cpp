// The same targets under libFuzzer: FUZZ_TARGET names the one. Every other change of an input is one of libFuzzer's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "mutate.h"
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

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
    static const orrery::fuzz::Mutator mutator(chosen());
    if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, most);
    std::mt19937_64 random(seed);
    std::string text(reinterpret_cast<const char*>(data), size);
    mutator.change(text, random);
    if (text.size() > most) text.resize(most);
    std::memcpy(data, text.data(), text.size());
    return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::clock_t begin = std::clock();
    chosen().run({reinterpret_cast<const char*>(data), size});
    if (std::clock() - begin > CLOCKS_PER_SEC)
        std::abort();  // of the processor: -timeout counts the machine's load, too
    return 0;
}
