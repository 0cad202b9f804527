// The CPU device joins any number of tensors.
#include <catch2/catch.hpp>

#include "plan_ranks.h"

using namespace orrery;

TEST_CASE("the cpu device concatenates more tensors than a bucket of a small model has") {
    constexpr int64_t parts = 100;
    Config config;
    const auto device = test::registry().device("cpu", {})(config);
    KernelSpec spec{"concat", {{"dim", int64_t{1}}}, {}, {{DType::f32, {2, 3 * parts}}}};
    std::vector<std::vector<float>> inputs;
    std::vector<Tensor> operands;
    for (int64_t i = 0; i < parts; ++i) {
        inputs.emplace_back(6, static_cast<float>(i));
        spec.inputs.push_back({DType::f32, {2, 3}});
        operands.push_back({inputs.back().data(), DType::f32, {2, 3}});
    }
    std::vector<float> out(static_cast<size_t>(6 * parts), -1.0f);
    operands.push_back({out.data(), DType::f32, {2, 3 * parts}});
    const auto kernel = device->prepare(spec);
    for (int launch = 0; launch < 2; ++launch) device->launch(0, *kernel, operands, nullptr);
    for (int64_t row = 0; row < 2; ++row)
        for (int64_t i = 0; i < 3 * parts; ++i)
            CHECK(out[static_cast<size_t>(row * 3 * parts + i)] == static_cast<float>(i / 3));
}
