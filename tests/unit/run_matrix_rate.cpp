#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "ir/build.h"
#include "run/matrix_rate.h"

using namespace orrery;

namespace {

/// Multiplies nothing, but takes its time: f32 at the rate that it states, other types in 4 ms a product.
class SlowDevice : public Device {
public:
    DeviceLimits limits() override { return stated; }
    Memory allocate(int64_t bytes, MemoryKind kind) override {
        bytes_.emplace_back(static_cast<size_t>(bytes));
        return {bytes_.back().data(), bytes, kind, ""};
    }
    void release(Memory& memory) override { memory = {}; }
    std::string why_not(const KernelSpec&) override { return ""; }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        asked = spec;
        return std::make_unique<Kernel>();
    }
    void launch(int, Kernel&, std::span<const Tensor>, void*) override {
        ++launches;
        std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
    void copy(int, void*, const void* from, int64_t bytes) override {
        filled.assign(static_cast<const char*>(from), static_cast<const char*>(from) + std::min<int64_t>(bytes, 4096));
        copied += bytes;
    }
    Event record(int) override { return {}; }
    void wait(int, const Event&) override {}
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }

    DeviceLimits stated;
    KernelSpec asked;
    int launches = 0;
    std::vector<char> filled;  ///< begin of the last copy
    int64_t copied = 0;

private:
    std::vector<std::vector<char>> bytes_;
};

}  // namespace

TEST_CASE("the peak of a bf16 program is the rate of bf16 products") {
    SlowDevice device;
    device.stated.matrix_flops_f32 = 5e9;
    CHECK(matrix_rate(device, DType::f32) == 5e9);
    CHECK(device.launches == 0);
    const double rate = matrix_rate(device, DType::bf16);
    CHECK(rate <= 2.0 * 512 * 512 * 512 / 0.004);  // a sleep lasts as long as asked at least
    CHECK(rate > 0);
    CHECK(rate != 5e9);
    CHECK(device.asked.op == "matmul");
    CHECK(device.asked.inputs.at(0).dtype == DType::bf16);
    device.stated.matrix_flops_bf16 = 7e9;
    CHECK(matrix_rate(device, DType::bf16) == 7e9);
    device.stated.matrix_flops_f32 = 9e9;  // to which its operands can be widened
    CHECK(matrix_rate(device, DType::bf16) == 9e9);
    device.stated = {};
    CHECK(matrix_rate(device, DType::bf16) == 0);
}

TEST_CASE("a device with its own memory is measured on random numbers, whatever it states") {
    SlowDevice device;
    device.stated = {.matrix_flops_f32 = 5e9, .matrix_flops_bf16 = 7e9, .host_visible = false};
    CHECK(matrix_rate(device, DType::f16) > 0);
    CHECK(device.asked.inputs.at(0) == TensorType{DType::f16, {8192, 8192}});
    CHECK(device.copied == 2 * 2 * 8192 * 8192);
    const std::set<char> bytes(device.filled.begin(), device.filled.end());
    CHECK(bytes.size() > 100);
    CHECK(rates_apart(DType::bf16, 100e12, 96e12) == "");
    CHECK(rates_apart(DType::bf16, 100e12, 104e12) == "");
    CHECK_THAT(rates_apart(DType::bf16, 100e12, 94e12),
               Catch::Contains("bf16 matrices ran at 94.0 TFLOP/s after the last step, and at 100.0 before"));
}

TEST_CASE("a program's matrix type is that of most of its products") {
    Program program;
    Builder build(program);
    CHECK(matrix_type(program) == DType::f32);
    const auto product = [&](const std::string& name, DType dtype, int64_t inner) {
        const ValueId a = build.input(name + "a", {dtype, {4, inner}}, {"", ""}, {});
        const ValueId b = build.input(name + "b", {dtype, {inner, 4}}, {"", ""}, {});
        build.one("matmul", {a, b}, {}, {});
    };
    product("small", DType::f32, 8);
    CHECK(matrix_type(program) == DType::f32);
    product("large", DType::bf16, 64);
    CHECK(matrix_type(program) == DType::bf16);
}
