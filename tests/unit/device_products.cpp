// The kinds of products of the CPU device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "../plugins/device/cpu/products.h"
#include "cli/products/measure.h"
#include "folders.h"
#include "plan_ranks.h"
#include "plugin/loader.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Device> cpu(const std::string& products, int64_t threads) {
    Config config("device.cpu");
    config.set("threads", {threads, {}, true});
    if (!products.empty()) config.set("products", {products, {"", "a.toml", 3, 1}, true});
    return test::registry().device("cpu", {})(config);
}

}  // namespace

TEST_CASE("the cpu device: every kind of products is right in every type", "[slow]") {
    for (const int64_t threads : {1, 3}) {
        const ProductKinds kinds = cpu("", threads)->products();
        CHECK(kinds.names == std::vector<std::string>{"onednn", "native", "blocks"});
        CHECK(kinds.in_use == "onednn");
        for (const std::string& name : kinds.names) {
            const auto device = cpu(name, threads);
            CHECK(device->products().in_use == name);
            try {
                check_products(*device, DType::f32);
            } catch (const Error& lacks) {  // no 16-bit products here
                CHECK(name == "native");
                CHECK_THAT(lacks.what(), Contains("device.cpu.products \"native\": ") && Contains("oneDNN"));
                WARN(lacks.what());
                continue;
            }
            for (const DType dtype : {DType::bf16, DType::f16}) {
                INFO(name << " of " << name_of(dtype) << ", threads " << threads);
                CHECK_NOTHROW(check_products(*device, dtype));
            }
        }
    }
}

TEST_CASE("the cpu device: a kernel reserves scratch for every kind of products") {
    const TensorType a{DType::f32, {700, 500}}, b{DType::f32, {500, 900}}, c{DType::f32, {700, 900}};
    const KernelSpec spec{"matmul", {}, {a, b}, {c}};
    const int64_t bytes = cpu("onednn", 2)->prepare(spec)->scratch_bytes();
    CHECK(bytes > 0);
    CHECK(cpu("blocks", 2)->prepare(spec)->scratch_bytes() == bytes);
    CHECK(cpu("native", 2)->prepare(spec)->scratch_bytes() == bytes);  // also where the machine lacks it
}

TEST_CASE("the cpu device: a kind of products that there is not") {
    CHECK_THROWS_WITH(cpu("block", 1), Contains("a.toml:3:1") && Contains("device.cpu.products \"block\"") &&
                                           Contains("there are: onednn, native, blocks"));
}

TEST_CASE("the cpu device: products of our own blocks take the scratch, oneDNN's of f32 do not") {
    const TensorType square{DType::f32, {64, 64}};
    std::vector<float> x(64 * 64, 1), y(64 * 64);
    const Tensor operands[] = {
        {x.data(), DType::f32, {64, 64}}, {x.data(), DType::f32, {64, 64}}, {y.data(), DType::f32, {64, 64}}};
    for (const std::string kind : {"onednn", "blocks"}) {
        const auto device = cpu(kind, 1);
        const auto kernel = device->prepare({"matmul", {}, {square, square}, {square}});
        Memory scratch = device->allocate(kernel->scratch_bytes(), MemoryKind::device);
        std::memset(scratch.data, 0, static_cast<size_t>(scratch.bytes));
        device->launch(0, *kernel, operands, scratch.data);
        CHECK(y == std::vector<float>(64 * 64, 64));
        const auto* bytes = static_cast<const char*>(scratch.data);
        CHECK(std::any_of(bytes, bytes + scratch.bytes, [](char byte) { return byte != 0; }) == (kind == "blocks"));
        device->release(scratch);
    }
}

TEST_CASE("the cpu device: what the speed of products depends on") {
    const std::string cpuinfo =
        "processor\t: 0\nvendor_id\t: Abacus\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: Abacus 9\nstepping\t: 2\n"
        "microcode\t: 0xa0011\nflags\t\t: amx_bf16\n\nprocessor\t: 1\nmicrocode\t: 0xb\n";
    const std::string machine = cpu_device::machine_of(cpuinfo, 3);
    CHECK_THAT(machine, Contains("model name=Abacus 9\ncpu family=25\nmodel=1\nstepping=2\nmicrocode=0xa0011\n") &&
                            Contains("\noneDNN=") && Contains("\nbuild=") && Contains("\nthreads=3\n"));
    CHECK(machine != cpu_device::machine_of(cpuinfo, 2));
    const std::string real = cpu("", 2)->machine();
    CHECK_THAT(real, Contains("\nbuild="));
    CHECK_THAT(real, !Contains("\nbuild=\n"));
}

TEST_CASE("the cpu device: what the last bits depend on") {
    const std::string arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";
    CHECK_THAT(cpu_device::arithmetic_of(arm, false), Contains("processor=0xd4f\ninstructions="));
    CHECK_THAT(cpu("", 2)->arithmetic(),
               Contains("\noneDNN=") && Contains("\noneDNN's instructions=") && Contains("\nlibc="));
    Config config("device.cpu");
    config.set("reference", {true, {}, true});
    CHECK(test::registry().device("cpu", {})(config)->arithmetic() == "kernels=reference\n");
}

TEST_CASE("the facts of device cpu are those of its limits", "[device]") {
    const DeviceFacts facts = Loader({in_build("plugins")}).facts("device", "cpu", {}).of_device();
    Config config;
    CHECK(facts.host_memory == test::registry().device("cpu", {})(config)->limits().host_visible);
    CHECK(facts.leaves_nothing);
}
