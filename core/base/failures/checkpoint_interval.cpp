#include "base/failures/checkpoint_interval.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "orrery/error.h"

namespace orrery {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

void require_times(const CheckpointTimes& times) {
    const auto refuse = [](const char* what, double found, const char* expected) {
        throw Error(fmt::format("{} of {} s is invalid, expected {}", what, found, expected));
    };
    if (!(times.cost_s >= 0) || times.cost_s == never) refuse("a checkpoint's cost", times.cost_s, "0 or more seconds");
    if (!(times.restart_s >= 0) || times.restart_s == never) refuse("a restart", times.restart_s, "0 or more seconds");
    if (!(times.between_failures_s > 0))
        refuse("a mean time between failures", times.between_failures_s, "more than 0 seconds, or infinity");
}

}  // namespace

double best_checkpoint_interval(const CheckpointTimes& times) {
    require_times(times);
    const double mean = times.between_failures_s;
    if (mean == never) return never;
    const double half = times.cost_s / (2 * mean);
    if (half >= 1) return mean;  // Daly's formula for jobs that make almost no progress
    return std::sqrt(2 * times.cost_s * mean) * (1 + std::sqrt(half) / 3 + half / 9) - times.cost_s;
}

double goodput(const CheckpointTimes& times, double interval_s) {
    require_times(times);
    if (!(interval_s >= 0)) throw Error(fmt::format("the checkpoint interval is {} s, expected 0 or more", interval_s));
    const double mean = times.between_failures_s, whole = interval_s + times.cost_s;
    if (mean == never) return whole == 0 || interval_s == never ? 1 : interval_s / whole;
    const double restarts = std::exp(-times.restart_s / mean);
    if (whole == 0) return restarts;  // goodput tends to this as the interval goes to 0
    if (interval_s == never) return 0;
    return restarts * interval_s / (mean * std::expm1(whole / mean));
}

}  // namespace orrery
