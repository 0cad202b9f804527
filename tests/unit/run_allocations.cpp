// A step allocates nothing: operator new is counted per thread, in this program only. Sanitizers bring their own
// operator new, which must stay; their builds leave this test out.
#include <catch2/catch.hpp>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <cstdlib>
#include <new>

#include "layout_models.h"
#include "plan_ranks.h"

namespace {
thread_local int64_t allocations = 0;
}

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace orrery;
using namespace orrery::test;

TEST_CASE("a step allocates nothing") {
    Model m = block(4, 6, 2, 4, 7, true, true);
    const Lowered lowered = compile(m.program, Mesh().with_microbatches(2));
    Config config;
    config.set("threads", {int64_t{1}, {}, false});
    const auto device = registry().device("cpu", {})(config);
    Memory persistent = device->allocate(lowered.persistent.bytes(), MemoryKind::device);
    Memory scratch = device->allocate(lowered.plan.classes[0].scratch_bytes, MemoryKind::device);
    std::memset(persistent.data, 0, static_cast<size_t>(persistent.bytes));
    {
        Executor executor(lowered.plan, 0, *device, {}, persistent.data, scratch.data);
        executor.run();  // kernels may grow the device's own scratch once
        const int64_t before = allocations;
        CHECK(before > 0);
        for (int step = 0; step < 3; ++step) executor.run();
        const int64_t during = allocations - before;
        CHECK(during == 0);
    }
    device->release(scratch);
    device->release(persistent);
}

#endif
