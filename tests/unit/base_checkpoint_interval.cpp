#include "base/failures/checkpoint_interval.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The interval of most goodput, by golden-section search: it has one maximum.
double searched(const CheckpointTimes& times) {
    const double golden = (std::sqrt(5.0) - 1) / 2;
    double low = 0, high = 4 * times.between_failures_s;
    for (int i = 0; i < 200; ++i) {
        const double left = high - golden * (high - low), right = low + golden * (high - low);
        (goodput(times, left) < goodput(times, right) ? low : high) =
            goodput(times, left) < goodput(times, right) ? left : right;
    }
    return (low + high) / 2;
}

/// The same fraction by playing `failures` failures: work that a failure strikes before its checkpoint is lost.
double played(const CheckpointTimes& times, double interval, int failures, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> until(1 / times.between_failures_s);
    double kept = 0, all = 0;
    for (int i = 0; i < failures; ++i) {
        double left = until(random);
        all += left;
        left -= times.restart_s;  // each life begins with one
        if (left > 0) kept += interval * std::floor(left / (interval + times.cost_s));
    }
    return kept / all;
}

}  // namespace

TEST_CASE("the interval between checkpoints is the one of most goodput", "[checkpoint_interval]") {
    for (const double share : {1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5, 1.0})
        for (const double mean : {60.0, 3600.0, 30 * 86400.0}) {
            const CheckpointTimes times{share * mean, 0.3 * share * mean, mean};
            const double best = searched(times), found = best_checkpoint_interval(times);
            CAPTURE(share, mean, best, found);
            CHECK(found == Approx(best).epsilon(share <= 0.05 ? 2e-3 : 0.05));
            CHECK(goodput(times, found) >= goodput(times, best) * 0.999);
            CHECK(goodput(times, found) <= goodput(times, best) * (1 + 1e-9));
        }
}

TEST_CASE("Daly's interval does more than Young's where checkpoints are dear", "[checkpoint_interval]") {
    const auto young = [](const CheckpointTimes& times) {
        return std::sqrt(2 * times.cost_s * times.between_failures_s);
    };
    const CheckpointTimes cheap{1, 60, 1e6}, dear{600, 60, 3600};
    CHECK(best_checkpoint_interval(cheap) == Approx(young(cheap)).epsilon(1e-3));
    CHECK(goodput(dear, best_checkpoint_interval(dear)) > goodput(dear, young(dear)) * 1.005);
    CHECK(best_checkpoint_interval({3 * 3600, 60, 3600}) == 3600);
}

TEST_CASE("goodput is what a job that fails by chance keeps", "[checkpoint_interval]") {
    for (const CheckpointTimes& times : {CheckpointTimes{10, 30, 1000}, CheckpointTimes{200, 0, 1000}})
        for (const double interval : {20.0, 150.0, 900.0})
            CHECK(played(times, interval, 400'000, 7) == Approx(goodput(times, interval)).epsilon(0.01));
}

TEST_CASE("without failures, costs or hope, the limits", "[checkpoint_interval]") {
    CHECK(best_checkpoint_interval({10, 60, never}) == never);
    CHECK(goodput({10, 60, never}, never) == 1);
    CHECK(goodput({10, 60, never}, 90) == Approx(0.9));
    CHECK(best_checkpoint_interval({0, 60, 3600}) == 0);
    CHECK(goodput({0, 60, 3600}, 0) == Approx(goodput({0, 60, 3600}, 1e-6)));
    CHECK(goodput({10, 60, 3600}, 0) == 0);
    CHECK(goodput({10, 60, 3600}, never) == 0);
    CHECK(goodput({10, 60, 3600}, 1e9) == 0);
    const double nan = std::nan("");
    CHECK_THROWS_WITH(goodput({-1, 0, 10}, 1), Contains("checkpoint's cost of -1 s"));
    CHECK_THROWS_WITH(goodput({1, nan, 10}, 1), Contains("a restart of nan s"));
    CHECK_THROWS_WITH(best_checkpoint_interval({1, 0, 0}), Contains("between failures of 0 s"));
    CHECK_THROWS_WITH(best_checkpoint_interval({1, 0, nan}), Contains("more than 0 seconds"));
    CHECK_THROWS_WITH(best_checkpoint_interval({never, 0, 1}), Contains("checkpoint's cost of inf s"));
    CHECK_THROWS_WITH(goodput({1, 0, 10}, -2), Contains("interval is -2 s"));
    CHECK_THROWS_WITH(goodput({1, 0, 10}, nan), Contains("interval is nan s"));
}
