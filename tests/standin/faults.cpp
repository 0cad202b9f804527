// What device/cuda says when a kernel goes wrong: each test breaks a GPU of its own for good.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "gpu/gpu.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t count = 64;

/// An addition whose result may lie where no GPU reaches.
struct Addition {
    explicit Addition(int64_t gpu, std::vector<std::pair<std::string, ConfigValue>> options = {}) {
        cudaGetLastError();  // of a GPU that another test has broken
        options.push_back({"device", {gpu}});
        device = gpu::device(std::move(options));
        const TensorType type{DType::f32, {count}};
        kernel = device->prepare({"add", {}, {type, type}, {type}});
        memory = device->allocate(count * 4, MemoryKind::device);
    }
    ~Addition() { device->release(memory); }
    void into(void* result) {
        const Tensor in{memory.data, DType::f32, {count}}, out{result, DType::f32, {count}};
        const Tensor operands[] = {in, in, out};
        device->launch(0, *kernel, operands, nullptr);
    }
    std::unique_ptr<Device> device;
    std::unique_ptr<Kernel> kernel;
    Memory memory;
    float ordinary[count] = {};
};

}  // namespace

TEST_CASE("stand-in: a kernel's fault shows at the next wait, which names the newest kernels") {
    Addition add(6);
    add.into(add.memory.data);
    add.device->synchronize(0);
    CHECK_NOTHROW(add.into(add.ordinary));
    CHECK_THROWS_WITH(add.device->synchronize(0), Contains("one of the kernels before this wait (newest first: add") &&
                                                      Contains("cudaErrorIllegal"));
    CHECK_THROWS_WITH(add.into(add.memory.data), Contains("device cuda: add: ") && Contains("cudaErrorIllegal"));
}

TEST_CASE("stand-in: check_launches names the kernel at once, and nothing is captured then") {
    Addition add(5, {{"check_launches", {true}}});
    std::string why;
    CHECK_FALSE(add.device->capture([&] { add.into(add.memory.data); }, why));
    CHECK_THAT(why, Contains("check_launches is true"));
    CHECK_THROWS_WITH(add.into(add.ordinary), Contains("device cuda: add: running it: cudaErrorIllegalAddress"));
}

TEST_CASE("stand-in: a fault in a captured step is the step's") {
    Addition add(4);
    std::string why;
    const auto step = add.device->capture([&] { add.into(add.ordinary); }, why);
    INFO(why);
    REQUIRE(step);
    add.device->synchronize(0);
    add.device->launch(0, *step, {}, nullptr);
    CHECK_THROWS_WITH(add.device->synchronize(0), Contains("newest first: the captured step"));
}

TEST_CASE("stand-in: GPUs that are not there, and speeds that cannot be measured") {
    CHECK_THROWS_WITH(gpu::device({{"device", {int64_t{8}}}}), Contains("the driver shows 8 GPUs, from 0 on"));
    CHECK_THROWS_WITH(gpu::device({{"local_rank", {int64_t{8}}}}),
                      Contains("rank 8 of the 9 on this host sees 8 GPUs"));
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::setenv("SLURM_GPUS_ON_NODE", "2", 1);
    CHECK_THROWS_WITH(gpu::device(), Contains("SLURM_GPUS_ON_NODE=2, but 8 GPUs of this host are visible"));
    CHECK_NOTHROW(gpu::device({{"device", {int64_t{0}}}}));
    ::setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
    CHECK_NOTHROW(gpu::device());
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("SLURM_GPUS_ON_NODE");
    const DeviceLimits limits = gpu::device()->limits();
    CHECK(limits.matrix_flops_f32 == 0);
    CHECK(limits.copy_bytes_per_s == 0);
    CHECK(limits.memory_bytes == int64_t{160} << 20);
}
