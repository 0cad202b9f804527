// The kinds of products of the CPU device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "../plugins/device/cpu/products.h"
#include "folders.h"
#include "plan_ranks.h"
#include "plugin/loader.h"
#include "run/products/measure.h"

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
        const auto device = cpu("", threads);
        const ProductKinds kinds = device->products();
        CHECK(kinds.names == std::vector<std::string>{"onednn", "native", "blocks"});
        for (const std::string& name : kinds.names) {
            try {
                device->use_products(name);
            } catch (const Error& lacks) {  // no 16-bit products here
                CHECK(name == "native");
                CHECK_THAT(lacks.what(), Contains("oneDNN"));
                WARN(lacks.what());
                continue;
            }
            CHECK(device->products().in_use == name);
            for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
                INFO(name << " of " << name_of(dtype) << ", threads " << threads);
                CHECK_NOTHROW(measure_products(*device, name, dtype, false));
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

TEST_CASE("the cpu device: a kernel that is prepared has the kind that is used when it is launched") {
    const auto device = cpu("", 1);
    const TensorType square{DType::f32, {64, 64}};
    const auto kernel = device->prepare({"matmul", {}, {square, square}, {square}});
    std::vector<float> x(64 * 64, 1), y(64 * 64);
    const Tensor operands[] = {
        {x.data(), DType::f32, {64, 64}}, {x.data(), DType::f32, {64, 64}}, {y.data(), DType::f32, {64, 64}}};
    Memory scratch = device->allocate(kernel->scratch_bytes(), MemoryKind::device);
    // Of f32 oneDNN packs what it likes to where it likes; our own blocks take the scratch.
    const auto touched = [&](const std::string& kind) {
        device->use_products(kind);
        std::memset(scratch.data, 0, static_cast<size_t>(scratch.bytes));
        device->launch(0, *kernel, operands, scratch.data);
        CHECK(y == std::vector<float>(64 * 64, 64));
        const auto* bytes = static_cast<const char*>(scratch.data);
        return std::any_of(bytes, bytes + scratch.bytes, [](char byte) { return byte != 0; });
    };
    CHECK(!touched("onednn"));
    CHECK(touched("blocks"));
    CHECK(!touched("onednn"));
    device->release(scratch);
}

TEST_CASE("the cpu device: who fixed the kind of products") {
    CHECK(cpu("blocks", 1)->products().in_use == "blocks");
    CHECK(cpu("blocks", 1)->products().fixed_by == "device.cpu.products");
    CHECK_THROWS_WITH(cpu("block", 1), Contains("a.toml:3:1") && Contains("device.cpu.products \"block\"") &&
                                           Contains("there are: onednn, native, blocks, or auto"));
    CHECK_THROWS_WITH(cpu("", 1)->use_products("mkl"), Contains("there are: onednn, native, blocks"));
}

TEST_CASE("the cpu device: what the speed of products depends on") {
    const std::string cpuinfo =
        "processor\t: 0\nvendor_id\t: Abacus\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: Abacus 9\nstepping\t: 2\n"
        "microcode\t: 0xa0011\nflags\t\t: amx_bf16\n\nprocessor\t: 1\nmicrocode\t: 0xb\n";
    const std::string machine = cpu_device::machine_of(cpuinfo, 3);
    CHECK_THAT(machine, Contains("model name=Abacus 9\ncpu family=25\nmodel=1\nstepping=2\nmicrocode=0xa0011\n") &&
                            Contains("\noneDNN=") && Contains("\nbuild=") && Contains("\nthreads=3\n"));
    CHECK(machine != cpu_device::machine_of(cpuinfo, 2));
    const std::string real = cpu("", 2)->products().machine;
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
