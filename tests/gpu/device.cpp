// The device by itself: memory, copies, order, capture.
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "gpu/gpu.h"
#include "plugin/loader.h"

using namespace orrery;

namespace {

std::vector<float> ramp(size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0f);
    return values;
}

/// y += x, as a kernel of the device.
struct Adder {
    explicit Adder(Device& device, int64_t count) : type{DType::f32, {count}} {
        kernel = device.prepare({"add", {}, {type, type}, {type}});
    }
    void launch(Device& device, void* x, void* y) const {
        const Tensor operands[] = {
            {x, type.dtype, type.shape}, {y, type.dtype, type.shape}, {y, type.dtype, type.shape}};
        device.launch(0, *kernel, operands, nullptr);
    }
    TensorType type;
    std::unique_ptr<Kernel> kernel;
};

}  // namespace

TEST_CASE("gpu: contents come back, through pieces and pinned memory", "[device]") {
    const auto device = gpu::device();
    for (const size_t count : {size_t{1}, size_t{1000}, (size_t{4} << 20) / 4, (size_t{41} << 20) / 4 + 3}) {
        const std::vector<float> sent = ramp(count);
        const auto bytes = static_cast<int64_t>(count * 4);
        Memory a = device->allocate(bytes, MemoryKind::device), b = device->allocate(bytes, MemoryKind::device),
               pinned = device->allocate(bytes, MemoryKind::pinned);
        CHECK(reinterpret_cast<uintptr_t>(a.data) % 64 == 0);
        device->copy(0, a.data, sent.data(), bytes);
        device->copy(0, b.data, a.data, bytes);
        device->copy(0, pinned.data, b.data, bytes);
        std::vector<float> back(count);
        device->copy(0, back.data(), b.data, bytes);
        device->synchronize(0);
        CHECK(back == sent);
        const float* host = static_cast<const float*>(pinned.data);
        CHECK(std::equal(sent.begin(), sent.end(), host));
        for (Memory* memory : {&a, &b, &pinned}) device->release(*memory);
    }
}

TEST_CASE("gpu: more memory than there is", "[device]") {
    const auto device = gpu::device();
    CHECK_THROWS_WITH(device->allocate(int64_t{1} << 50, MemoryKind::device),
                      Catch::Matchers::Contains("MiB asked for") && Catch::Matchers::Contains("free on GPU 0"));
    CHECK_THROWS_AS(device->allocate(64, MemoryKind::shared), Error);
    Memory after = device->allocate(64, MemoryKind::device);
    device->release(after);
}

TEST_CASE("gpu: queues wait for each other's events", "[device]") {
    const auto device = gpu::device();
    constexpr int64_t count = 8 << 20;
    Memory x = device->allocate(count * 4, MemoryKind::device), y = device->allocate(count * 4, MemoryKind::device),
           pinned = device->allocate(count * 4, MemoryKind::pinned);
    const std::vector<float> ones(count, 1.0f), zeros(count, 0.0f);
    device->copy(0, x.data, ones.data(), count * 4);
    device->copy(0, y.data, zeros.data(), count * 4);
    const Adder add(*device, count);
    for (int i = 0; i < 20; ++i) add.launch(*device, x.data, y.data);
    device->wait(1, device->record(0));
    device->copy(1, pinned.data, y.data, count * 4);
    device->record(1).wait();
    CHECK(static_cast<const float*>(pinned.data)[count - 1] == 20.0f);
    for (Memory* memory : {&x, &y, &pinned}) device->release(*memory);
}

TEST_CASE("gpu: a captured step runs when it is launched, each time", "[device]") {
    const auto device = gpu::device();
    Memory x = device->allocate(4096, MemoryKind::device), y = device->allocate(4096, MemoryKind::device);
    const std::vector<float> ones(1024, 1.0f), zeros(1024, 0.0f);
    device->copy(0, x.data, ones.data(), 4096);
    device->copy(0, y.data, zeros.data(), 4096);
    device->synchronize(0);
    const Adder add(*device, 1024);
    std::string why;
    const auto step = device->capture(
        [&] {
            add.launch(*device, x.data, y.data);
            add.launch(*device, x.data, y.data);
        },
        why);
    INFO(why);
    REQUIRE(step);
    for (int i = 0; i < 3; ++i) device->launch(0, *step, {}, nullptr);
    std::vector<float> back(1024);
    device->copy(0, back.data(), y.data, 4096);
    device->synchronize(0);
    CHECK(back == std::vector<float>(1024, 6.0f));
    CHECK_FALSE(device->capture([&] { device->synchronize(0); }, why));
    CHECK(why != "");
    add.launch(*device, x.data, y.data);  // the device still works
    device->synchronize(0);
    for (Memory* memory : {&x, &y}) device->release(*memory);
}

TEST_CASE("gpu: a captured step waits at a gate for what is behind it now", "[device]") {
    const auto device = gpu::device();
    constexpr int64_t all = 24 << 20, changed = 1024;
    Memory x = device->allocate(changed * 4, MemoryKind::device), y = device->allocate(all * 4, MemoryKind::device),
           copy = device->allocate(all * 4, MemoryKind::pinned);
    const std::vector<float> ones(all, 1.0f);
    device->copy(0, x.data, ones.data(), changed * 4);
    device->copy(0, y.data, ones.data(), all * 4);
    device->synchronize(0);
    float* const last = static_cast<float*>(y.data) + all - changed;  // what a copy reaches last
    const Adder add(*device, changed);
    std::string why;
    const Event gate = device->gate(1);
    const auto step = device->capture(
        [&] {
            device->wait(0, gate);
            add.launch(*device, x.data, last);
        },
        why);
    INFO(why);
    REQUIRE(step);
    const float* const seen = static_cast<const float*>(copy.data) + all - changed;
    for (const float before : {1.0f, 2.0f, 3.0f}) {
        device->copy(1, copy.data, y.data, all * 4);
        const Event closed = device->gate(1);
        CHECK(closed.owner == gate.owner);
        device->launch(0, *step, {}, nullptr);
        std::string failure;
        std::thread([&] {
            try {
                closed.wait();
            } catch (const std::exception& error) {
                failure = error.what();
            }
        }).join();
        CHECK(failure == "");
        CHECK(gate.done());
        CHECK(seen[0] == before);
        CHECK(seen[changed - 1] == before);
        device->synchronize(0);
    }
    for (Memory* memory : {&x, &y, &copy}) device->release(*memory);
}

TEST_CASE("gpu: a capture that fails leaves no launch behind", "[device]") {
    const auto device = gpu::device();
    constexpr int64_t count = 256;
    Memory arena = device->allocate(8 * count * 4, MemoryKind::device);
    const std::vector<float> ones(8 * count, 1.0f);
    device->copy(0, arena.data, ones.data(), arena.bytes);
    device->synchronize(0);
    const TensorType many{DType::f32, {count}}, one{DType::f32, {}};
    const auto update = device->prepare({"adamw", {}, {many, many, many, many, one, one, one}, {many, many, many}});
    std::vector<Tensor> operands;
    for (int64_t i : {0, 1, 2, 3, 4, 5, 6, 0, 2, 3})  // p, g, m, v, lr, scale, step, and in place
        operands.push_back({static_cast<float*>(arena.data) + i * count, DType::f32, i < 4 ? many.shape : one.shape});
    std::string why;
    const auto fails = [&] {
        device->launch(0, *update, operands, nullptr);  // waits for another that may be joined to it
        throw Error("no more of it");
    };
    CHECK_FALSE(device->capture(fails, why));
    CHECK_THAT(why, Catch::Matchers::Contains("no more of it"));
    const auto contents = [&] {
        std::vector<float> back(8 * count);
        device->copy(0, back.data(), arena.data, arena.bytes);
        device->synchronize(0);
        return back;
    };
    CHECK(contents() == ones);
    device->launch(0, *update, operands, nullptr);
    CHECK(contents() != ones);
    device->release(arena);
}

TEST_CASE("gpu: a copy of ordinary memory is not captured, and copies go on after it", "[device]") {
    const auto device = gpu::device();
    Memory memory = device->allocate(4096, MemoryKind::device);
    std::vector<float> back(1024);
    std::string why;
    for (int round = 0; round < 6; ++round) {  // more than there are pieces
        const std::vector<float> sent(1024, static_cast<float>(round));
        CHECK_FALSE(device->capture([&] { device->copy(0, memory.data, sent.data(), 4096); }, why));
        CHECK_THAT(why, Catch::Matchers::Contains("ordinary host memory cannot be captured"));
        CHECK_FALSE(device->capture([&] { device->copy(0, back.data(), memory.data, 4096); }, why));
        CHECK_THAT(why, Catch::Matchers::Contains("ordinary host memory cannot be captured"));
        device->copy(0, memory.data, sent.data(), 4096);
        device->copy(0, back.data(), memory.data, 4096);
        CHECK(back == sent);
    }
    device->release(memory);
}

TEST_CASE("gpu: a rank's GPU and its address on the bus", "[device]") {
    const auto address = Loader({gpu::plugin_folder()}).device_address("cuda");
    REQUIRE(address);
    int gpus = 0;
    kernels::cuda::check(cudaGetDeviceCount(&gpus), "counting the GPUs");
    const auto of_rank = [&](int64_t rank, int64_t ranks, bool own, int64_t asked = -1) {
        Config options("device.cuda");
        options.set("local_rank", {rank});
        options.set("local_ranks", {ranks});
        options.set("own_environment", {own});
        if (asked >= 0) options.set("device", {asked});
        return address(options);
    };
    std::vector<std::string> all;
    for (int gpu = 0; gpu < gpus; ++gpu) {
        char text[32] = "";
        kernels::cuda::check(cudaDeviceGetPCIBusId(text, sizeof text, gpu), "reading an address");
        all.emplace_back(text);
        CHECK(of_rank(gpu, gpus, false) == text);
        CHECK(of_rank(0, 1, false, gpu) == text);
    }
    const std::string both =
        "rank 0 of the " + std::to_string(gpus + 1) + " on this host sees " + std::to_string(gpus) + " GPU";
    CHECK_THROWS_WITH(of_rank(0, gpus + 1, false), Catch::Matchers::Contains(both));
    if (gpus == 1)
        CHECK(of_rank(5, 8, true) == all.front());
    else
        CHECK_THROWS_WITH(of_rank(0, gpus + 1, true), Catch::Matchers::Contains(both));
}

TEST_CASE("gpu: limits are measured", "[device]") {
    const auto device = gpu::device();
    const DeviceLimits limits = device->limits();
    CHECK_FALSE(limits.host_visible);
    CHECK(limits.memory_bytes > int64_t{1} << 30);
    CHECK(limits.used_bytes > 0);
    CHECK(limits.copy_bytes_per_s > 1e10);
    CHECK(limits.matrix_flops_bf16 > 1e12);
    WARN(limits.name << ": bf16 " << limits.matrix_flops_bf16 / 1e12 << " TFLOP/s, f32 "
                     << limits.matrix_flops_f32 / 1e12 << ", copy " << limits.copy_bytes_per_s / 1e9 << " GB/s");
}
