#include "compile/ramp.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "orrery/error.h"

using namespace orrery;

namespace {

/// Megatron-LM's rule, one step after the other: the size is a function of the samples consumed.
int64_t megatron(int64_t consumed, int64_t full, const BatchRamp& ramp) {
    const int64_t rises = (full - ramp.start) / ramp.increment;
    if (consumed > ramp.samples) return full;
    const double each = static_cast<double>(ramp.samples) / static_cast<double>(rises);
    return ramp.start + static_cast<int64_t>(static_cast<double>(consumed) / each) * ramp.increment;
}

}  // namespace

TEST_CASE("a ramp takes the sizes that Megatron-LM takes, at the same samples") {
    const std::vector<std::pair<int64_t, BatchRamp>> cases = {
        {32, {4, 4, 700}}, {16, {2, 7, 64}}, {64, {8, 8, 56}}, {9, {1, 1, 16}}, {1024, {32, 32, 8192}}, {8, {6, 2, 1}}};
    for (const auto& [full, ramp] : cases) {
        INFO(full << " from " << ramp.start << " by " << ramp.increment << " over " << ramp.samples);
        const BatchSizes sizes(full, ramp);
        int64_t consumed = 0;
        for (int64_t step = 1; step <= 700; ++step) {
            REQUIRE(sizes.samples_before(step) == consumed);
            REQUIRE(sizes.batch(step) == megatron(consumed, full, ramp));
            consumed += sizes.batch(step);
        }
        CHECK(sizes.batch(700) == full);
        CHECK(sizes.full() == full);
        CHECK(sizes.sizes().back() == full);
        const std::vector<int64_t> taken = sizes.sizes();
        CHECK(std::is_sorted(taken.begin(), taken.end()));
    }
}

TEST_CASE("without a ramp every step takes the full batch") {
    const BatchSizes sizes(8);
    CHECK(sizes.batch(1) == 8);
    CHECK(sizes.batch(1000) == 8);
    CHECK(sizes.samples_before(1) == 0);
    CHECK(sizes.samples_before(11) == 80);
    CHECK(BatchSizes(int64_t{1} << 40).samples_before((1 << 23) + 0LL) == ((int64_t{1} << 23) - 1) << 40);
    CHECK_THROWS_WITH(BatchSizes(int64_t{1} << 40).samples_before((1 << 23) + 1LL),
                      Catch::Contains("exceeds 2^63 samples"));
    CHECK(sizes.sizes() == std::vector<int64_t>{8});
}

TEST_CASE("a large step jumps over sizes whose samples are drawn already") {
    const BatchSizes sizes(64, {16, 16, 30});  // 10 samples for each of 16, 32, 48: two steps use them up
    CHECK(sizes.text() == "16 from step 1, 32 from step 2, 64 from step 3");
}

TEST_CASE("a ramp that misses the full batch is refused") {
    CHECK_THROWS_AS(BatchSizes(32, {4, 5, 100}), Error);
    CHECK_THROWS_AS(BatchSizes(32, {32, 4, 100}), Error);
    CHECK_THROWS_AS(BatchSizes(32, {4, 4, 0}), Error);
    CHECK_THROWS_AS(BatchSizes(32, {-4, 4, 10}), Error);
}
