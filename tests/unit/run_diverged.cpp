#include "run/checkpoint/nonfinite.h"

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
    // 1, the largest, infinity, NaN; their negatives
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, false) == 2);
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, true) == 3);
    CHECK(diverged(DType::f16, std::vector<uint16_t>{0x3c00, 0x7bff, 0x7c00, 0xfe00}, true) == 2);
    // behind and in whole blocks
    std::vector<float> many(1000, 1.0f);
    for (const size_t at : {0u, 255u, 256u, 700u, 768u, 999u}) many[at] = -inf;
    CHECK(diverged(DType::f32, many, true) == 6);
    CHECK(diverged(DType::bf16, std::vector<uint16_t>(513, 0xff80), true) == 513);
    CHECK(diverged(DType::u32, std::vector<uint32_t>{0xffffffff, 0x7f800000}, true) == 0);
}

TEST_CASE("a saved step is judged by the next one's loss, and by what the run was near to", "[diverged]") {
    LossJudge run;
    const auto saved = [&run](int64_t step, double loss, double next) {
        CHECK(run.judge(step, loss).empty());
        run.step = step;
        run.loss = loss;
        return run.judge(step + 1, next);
    };
    CHECK(run.judge(1, 5).empty());
    SECTION("one very low loss makes its own step suspect at most") {
        CHECK(saved(10, 2, 1.9).empty());
        CHECK(saved(20, 1e-4, 0.09).empty());
        CHECK(saved(30, 2, 2.1).empty());
        CHECK(saved(40, 1e-5, 2) == "the loss of step 41 is 2, above 1000 times the 1e-05 of this step");
        CHECK(saved(50, 2, 1.8).empty());
    }
    SECTION("a run that has diverged stays suspect") {
        CHECK(saved(10, 3, 1.2e11) == "the loss of step 11 is 1.2e+11, above 1000 times the 3 of this step");
        CHECK(saved(20, 1.2e11, 6.6e13) == "the loss of step 21 is 6.6e+13, above 1000 times the 5 of an earlier one");
        CHECK(saved(30, 6.6e13, 6.6e13) == "the loss of step 31 is 6.6e+13, above 1000 times the 5 of an earlier one");
        CHECK(saved(40, 6.6e13, std::numeric_limits<double>::quiet_NaN()) == "the loss of step 41 is nan");
    }
    SECTION("a loss that rises is followed") {
        CHECK(saved(10, 4000, 4100).empty());
        CHECK(saved(20, 3e6, 3e6).empty());
        CHECK(run.reference() == 3e6);
    }
    SECTION("a step that is not the next one is not compared") {
        run.step = 10;
        run.loss = 1;
        CHECK(run.judge(12, 1e9).empty());
    }
}
