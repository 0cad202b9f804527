// A step allocates nothing: operator new is counted per thread, in this program only. Sanitizers bring their own
// operator new, which must stay; their builds leave this test out.
#include <catch2/catch.hpp>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "folders.h"
#include "layout_models.h"
#include "plan_ranks.h"
#include "run/metrics/breakdown.h"
#include "run/metrics/metrics.h"

namespace {
thread_local int64_t allocations = 0;
}

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    ++allocations;
    return __libc_memalign(alignment, bytes);
}

using namespace orrery;
using namespace orrery::test;

TEST_CASE("a step allocates nothing") {
    Model m = block(4, 6, 2, 4, 7, true, true);
    const auto device = cpu_device(false);
    CompileOptions options;
    options.workspace = [&](const KernelSpec& spec) { return device->prepare(spec)->scratch_bytes(); };
    const Lowered lowered = compile(m.program, Mesh().with_microbatches(2), options);
    RankContext context(setting_of(lowered, 0, *device, nullptr));
    const Memory& persistent = context.arenas()[0];
    std::memset(persistent.data, 0, static_cast<size_t>(persistent.bytes));
    const auto executor = context.executor(lowered.plan);
    CHECK(executor->kernel_scratch_bytes() == 0);  // all of it has a place in the plan
    executor->run();                               // OpenMP and oneDNN may keep something once
    const int64_t before = allocations;
    CHECK(before > 0);
    for (int step = 0; step < 3; ++step) executor->run();
    const int64_t during = allocations - before;
    CHECK(during == 0);
}

TEST_CASE("what a step tells allocates nothing, but for the line on the terminal", "[slow]") {
    const std::string folder = in_build("tests/run_allocations");
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::FILE* const nothing = std::fopen("/dev/null", "w");
    {
        MetricsWriter writer({folder + "/metrics.jsonl", folder + "/tensorboard", folder + "/a.prom", "a"}, nothing);
        writer.resume(0);
        const ResidentSet resident;
        const std::vector<StepResult> results{{"one", 1}, {"many", 200}};
        StepMetrics m;
        m.results = results;
        const auto tell = [&] {
            ++m.step;
            m.time = wall_time();
            m.loss = 1 / static_cast<double>(m.step);
            m.memory_bytes = resident.bytes();
            writer.step(m, false);
        };
        for (int step = 0; step < 10; ++step) tell();
        const int64_t before = allocations;
        const auto began = std::chrono::steady_clock::now();
        while (m.step < 100 || std::chrono::steady_clock::now() - began < std::chrono::milliseconds(1100)) tell();
        CHECK(allocations - before == 0);
    }
    std::fclose(nothing);
    std::filesystem::remove_all(folder);
}

TEST_CASE("scratch in the plan gives the bits of scratch beside it") {
    Model m = block(4, 6, 2, 4, 7, true, true);
    const auto device = cpu_device(false);
    CompileOptions options;
    int64_t most = 0;
    options.workspace = [&](const KernelSpec& spec) {
        const int64_t bytes = device->prepare(spec)->scratch_bytes();
        most = std::max(most, bytes);
        return bytes;
    };
    const Lowered with = compile(m.program, Mesh().with_microbatches(2), options);
    const Lowered without = compile(m.program, Mesh().with_microbatches(2));
    CHECK(most > 0);
    CHECK(with.plan.classes[0].scratch_bytes > without.plan.classes[0].scratch_bytes);
    CHECK(difference(run_steps(with, 3, false).values, run_steps(without, 3, false).values, 0) == "");
}

TEST_CASE("a plan that knows less scratch than the device needs is refused") {
    Model m = block(4, 6, 2, 4, 7, true, true);
    CompileOptions options;
    options.workspace = [](const KernelSpec&) { return int64_t{1}; };
    const Lowered lowered = compile(m.program, Mesh(), options);
    CHECK_THROWS_WITH(run_steps(lowered, 1, false),
                      Catch::Matchers::Contains("bytes of workspace in the plan, but the device needs"));
}

#endif
