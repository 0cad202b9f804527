#include "run/diverged.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

using namespace orrery;

namespace {

template <class T>
int64_t diverged(DType dtype, std::vector<T> values, bool usable) {
    const Tensor tensor{values.data(), dtype, {static_cast<int64_t>(values.size())}};
    return count_diverged(tensor, usable);
}

}  // namespace

TEST_CASE("elements from which no model can go on are counted", "[diverged]") {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values{0.0f, -1.0f, 1e19f, 1e-45f, -3e38f, inf, -inf, nan, -nan};
    CHECK(diverged(DType::f32, values, false) == 4);
    CHECK(diverged(DType::f32, values, true) == 5);
    const std::vector<double> doubles{1e19, 1e20, -1e300, inf, nan};
    CHECK(diverged(DType::f64, doubles, false) == 2);
    CHECK(diverged(DType::f64, doubles, true) == 4);
    // 1, the largest, infinity, no number; their negatives
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, false) == 2);
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, true) == 3);
    CHECK(diverged(DType::f16, std::vector<uint16_t>{0x3c00, 0x7bff, 0x7c00, 0xfe00}, true) == 2);
    CHECK(diverged(DType::u32, std::vector<uint32_t>{0xffffffff, 0x7f800000}, true) == 0);
}
