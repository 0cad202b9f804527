// Whether cuDNN has engines for our graphs, without a GPU: an H200 is described to it, and driver.cpp loads its
// modules. And which of cuBLASLt's algorithms are kept in a file.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "kernels/cuda/blas_plan.h"
#include "kernels/cuda/dnn_attention.h"

using namespace orrery;
using namespace orrery::kernels;
using namespace orrery::kernels::cuda;

namespace {

const char* const h200 = R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,
"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150754820096,
"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,
"driverVer":13000,"deviceName":"NVIDIA H200"})";

struct Case {
    i64 batch, heads, groups, time, dim;
    bool causal;
    Type type;
};

Attention sizes(const Case& c) {
    Attention s;
    s.batch = c.batch, s.heads = c.heads, s.groups = c.groups, s.queries = s.keys = c.time, s.head_dim = c.dim;
    s.causal = c.causal;
    return s;
}

/// The first form must do: what comes after it is a last resort.
std::unique_ptr<DnnAttentionPlan> plan(const Attention& s, Type type, bool backward, bool deterministic) {
    const DnnMachine machine{cudnnGetVersion(), 9, 0};
    DnnTarget target;
    target.described = h200;
    std::string why;
    std::unique_ptr<DnnAttentionPlan> made = plan_attention(s, type, backward, deterministic, machine, target, why);
    INFO(why);
    REQUIRE(made != nullptr);
    CHECK(why == "");
    CHECK(made->attempt().form == dnn_attempts(s, backward, deterministic, machine).at(0).form);
    CHECK(made->how().rfind("cuDNN " + dnn_version_text(machine.version) + ", engine ", 0) == 0);
    return made;
}

}  // namespace

TEST_CASE("dnn plans: cuDNN has an engine for every form of attention on an H200") {
    for (const Case& c : {Case{16, 25, 25, 1024, 64, true, Type::bf16},
                          {2, 4, 2, 256, 128, true, Type::f16},
                          {2, 4, 4, 256, 64, false, Type::bf16}}) {
        const Attention s = sizes(c);
        INFO(c.batch << " x " << c.heads << "/" << c.groups << " x " << c.time << " x " << c.dim);
        CHECK(plan(s, c.type, false, true)->graph().workspace() < 1 << 20);
        const i64 of_heads = 2 * s.batch * s.heads * s.keys * s.head_dim * 2;  // dk and dv before their sum in groups
        const auto fixed = plan(s, c.type, true, true), free = plan(s, c.type, true, false);
        CHECK(fixed->graph().workspace() <= dnn_most_scratch(s));
        const DnnAttempt& slice = fixed->attempt();  // its scratch is what it was chosen by
        const i64 slope = dnn_slope_bytes(slice.batch, slice.heads, s.queries, s.keys);
        CHECK(fixed->graph().workspace() <= slope + (c.heads == c.groups ? 0 : of_heads) + (1 << 20));
        CHECK(free->attempt().form == DnnForm::summed);
        CHECK(free->graph().workspace() <= of_heads + (1 << 20));
    }
}

TEST_CASE("dnn plans: what no engine does is refused with each one's reason") {
    const Attention s = sizes({2, 4, 4, 256, 64, true, Type::bf16});
    DnnTarget target;
    target.described = h200;
    const DnnAttempt unknown{DnnForm::stored, 2, 4, 4, 999, {}};
    try {
        const DnnAttentionPlan made(s, Type::bf16, unknown, {cudnnGetVersion(), 9, 0}, target, true);
        FAIL("an engine with the number 999");
    } catch (const Failure& failure) {
        CHECK_THAT(failure.what(), Catch::Contains("engine 999: "));
    }
}

TEST_CASE("blas plans: an algorithm that was not timed is kept for the process, and not in the file") {
    char name[] = "/tmp/orrery_blas_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    const std::filesystem::path folder = name;
    Chip chip;
    chip.name = folder.filename().string();  // choices of the process are by chip
    const cuda::Context context(chip, nullptr, folder);
    const BlasCache cache(context);
    BlasChoice untimed, timed, found;
    untimed.workspace = 64, timed.workspace = 128;
    CHECK(cache.add("1x2x3x4", untimed, false).workspace == 64);
    CHECK_FALSE(std::filesystem::exists(folder / "cublaslt.txt"));
    REQUIRE(cache.find("1x2x3x4", found));
    CHECK(found.workspace == 64);
    CHECK(cache.add("1x2x3x4", timed, true).workspace == 64);  // devices of a process agree

    CHECK(cache.add("5x6x7x8", timed, true).workspace == 128);
    std::ifstream file(folder / "cublaslt.txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Catch::Contains(": 5x6x7x8 = 128 "));
    {
        std::ofstream other(folder / "cublaslt.txt", std::ios::app);  // as another process timed it
        std::string line = lines[0];
        other << line.replace(line.find("5x6x7x8 = 128"), 13, "9x9x9x9 = 256") << "\n";
    }
    CHECK(cache.add("9x9x9x9", untimed, false).workspace == 256);
    std::filesystem::remove_all(folder);
}
