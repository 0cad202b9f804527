#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "orrery/half.h"
#include "run/verify/float_distance.h"

using namespace orrery;

TEST_CASE("differences are measured and their farthest element named") {
    const float want[] = {1, 2, 3, std::nanf("")};
    float have[] = {1, 2, 3, std::nanf("")};
    CHECK(difference(DType::f32, have, want, 4).distance == 0);
    have[1] = 2.5f;
    have[2] = 2.0f;
    const Difference d = difference(DType::f32, have, want, 4);
    CHECK(d.distance == Approx(std::sqrt(1.25)));
    CHECK(d.worst == 2);
    CHECK(d.unequal == 2);
    CHECK(d.have == 2);
    CHECK(d.want == 3);
    CHECK(index_text({2, 2}, d.worst) == "[1,0]");
    have[0] = std::nanf("");
    CHECK(difference(DType::f32, have, want, 4).distance == std::numeric_limits<double>::infinity());
    const uint16_t one = 0x3f80, two = 0x4000;
    CHECK(difference(DType::bf16, &two, &one, 1).distance == 1);
    const int32_t a[] = {7, -1}, b[] = {4, -1};
    CHECK(difference(DType::i32, a, b, 2).distance == 3);
}

TEST_CASE("jitter moves floats by their last digits, halves seldom, integers never") {
    std::vector<float> x(1000, 3.0f);
    jitter(DType::f32, x.data(), 1000, 0x1p-22, 5);
    int up = 0;
    for (float v : x) {
        CHECK(std::abs(v - 3.0f) == Approx(3 * 0x1p-22).epsilon(0.5));
        up += v > 3.0f;
    }
    CHECK((400 < up && up < 600));
    std::vector<uint16_t> half(1 << 16, 0x3f80);
    jitter(DType::bf16, half.data(), 1 << 16, 0x1p-12, 7);
    int moved = 0;
    for (uint16_t v : half) moved += v != 0x3f80;
    CHECK((1500 < moved && moved < 2600));  // 2^16 * 2^-12 / 2^-7 = 2048
    std::vector<int32_t> whole(10, 3);
    jitter(DType::i32, whole.data(), 10, 1, 9);
    CHECK(whole == std::vector<int32_t>(10, 3));
}

TEST_CASE("16-bit floats survive widening and narrowing, and what lies between goes to the nearer, ties to even") {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        if ((half & 0x7fff) <= 0x7f80 && narrow_bf16(widen_bf16(half)) != half) FAIL("bf16 " << bits);
        if ((half & 0x7fff) <= 0x7c00 && narrow_f16(widen_f16(half)) != half) FAIL("f16 " << bits);
    }
    CHECK(narrow_bf16(1.0f + 0x1p-8f) == 0x3f80);
    CHECK(narrow_bf16(1.0f + 3 * 0x1p-8f) == 0x3f82);
    CHECK(narrow_f16(1.0f + 0x1p-11f) == 0x3c00);
    CHECK(narrow_f16(1.0f + 3 * 0x1p-11f) == 0x3c02);
    CHECK(narrow_f16(65519.0f) == 0x7bff);
    CHECK(narrow_f16(65520.0f) == 0x7c00);
    CHECK(narrow_f16(-0x1p-25f) == 0x8000);
    CHECK(narrow_f16(0x1.8p-25f) == 0x0001);
    CHECK(std::isnan(widen_f16(narrow_f16(std::nanf("")))));
    CHECK(std::isnan(widen_bf16(narrow_bf16(std::nanf("")))));
}

TEST_CASE("elements that are left out count neither in the distance nor as the farthest") {
    const float want[] = {1, 2, 3}, have[] = {1, 5, 4};
    const char left_out[] = {0, 1, 0};
    const Difference d = difference(DType::f32, have, want, 3, left_out);
    CHECK(d.distance == 1);
    CHECK(d.worst == 2);
    CHECK(d.left_out == 1);
    CHECK(d.unequal == 2);
}
