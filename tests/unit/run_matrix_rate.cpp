#include <catch2/catch.hpp>

#include <chrono>
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
    void copy(int, void*, const void*, int64_t) override {}
    Event record(int) override { return {}; }
    void wait(int, const Event&) override {}
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }

    DeviceLimits stated;
    KernelSpec asked;
    int launches = 0;

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
    CHECK(rate <= 2.0 * 1024 * 1024 * 1024 / 0.004);  // a sleep lasts as long as asked at least
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
