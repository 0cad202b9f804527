// bf16 and f16 conversions, and Philox against the known answers of Random123.
#include "kernels/types.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/philox.h"

using namespace orrery::kernels;

namespace {

template <class Half>
bool is_nan(Half h) {
    return std::isnan(to_float(h));
}

/// Every value survives the way to float and back, and the nearest value is chosen between neighbours.
template <class Half>
void check_all(Half (*round)(float), std::uint32_t finite) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
        const Half h{static_cast<std::uint16_t>(bits)};
        const Half back = round(to_float(h));
        if (is_nan(h)) {
            if (!is_nan(back)) FAIL("NaN " << bits << " became a number");
        } else if (back.bits != bits) {
            FAIL("bits " << bits << " came back as " << back.bits);
        }
    }
    for (std::uint32_t bits = 0; bits + 1 < finite; ++bits) {
        const float low = to_float(Half{static_cast<std::uint16_t>(bits)});
        const float high = to_float(Half{static_cast<std::uint16_t>(bits + 1)});
        const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
        const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        if (round(middle).bits != even) FAIL("tie above " << bits << " went to " << round(middle).bits);
        if (round(std::nextafter(middle, 0.0f)).bits != bits) FAIL("below the tie above " << bits);
        if (round(std::nextafter(middle, INFINITY)).bits != bits + 1) FAIL("over the tie above " << bits);
        if (round(-middle).bits != (even | 0x8000u)) FAIL("negative tie above " << bits);
    }
}

}  // namespace

TEST_CASE("bf16 rounds to nearest even") {
    check_all<bf16>([](float x) { return to_bf16(x); }, 0x7f80);
    CHECK(to_bf16(3.4e38f).bits == 0x7f80);
    CHECK(is_nan(to_bf16(std::numeric_limits<float>::signaling_NaN())));
    CHECK(is_nan(to_bf16(std::bit_cast<float>(0x7fffffffu))));
}

TEST_CASE("f16 rounds to nearest even") {
    check_all<f16>([](float x) { return to_f16(x); }, 0x7c00);
    CHECK(to_f16(65519.0f).bits == 0x7bff);
    CHECK(to_f16(65520.0f).bits == 0x7c00);
    CHECK(to_f16(-1e30f).bits == 0xfc00);
    CHECK(is_nan(to_f16(std::bit_cast<float>(0xffffffffu))));
}

TEST_CASE("Philox gives the known answers of Random123") {
    const auto check = [](Philox counter, std::uint32_t k0, std::uint32_t k1, Philox expected) {
        const Philox got = philox(counter, k0, k1);
        for (int i = 0; i < 4; ++i) CHECK(got.word[i] == expected.word[i]);
    };
    const std::uint32_t ones = 0xffffffffu;
    check({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}});
    check({{ones, ones, ones, ones}}, ones, ones, {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}});
    check({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u,
          {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}});
}

TEST_CASE("the drop threshold is exact") {
    CHECK(drop_below(0.0) == 0u);
    CHECK(drop_below(0.5) == 0x80000000u);
    CHECK(drop_below(0.25) == 0x40000000u);
}
