#include "run/preflight/outliers.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery {
namespace {

constexpr size_t few = 64;  ///< above this many values, each is compared with the median of all

/// Median and scatter of values. Rates and times scatter by factors, so distances are differences of logarithms.
struct Like {
    double middle, scatter;
};

double log_of(double value) { return std::log(std::max(value, 1e-30)); }

Like like(std::vector<double> values) {
    const double middle = median(values);
    for (double& value : values) value = std::abs(log_of(value) - log_of(middle));
    return {middle, 1.4826 * median(std::move(values))};
}

bool too_bad(double value, const Like& others, const OutlierRule& rule) {
    const double sign = rule.higher_is_better ? 1 : -1;
    const double bound = rule.higher_is_better ? others.middle * rule.share : others.middle / rule.share;
    return sign * (bound - value) > 0 && sign * (others.middle - value) > rule.least &&
           std::abs(log_of(value) - log_of(others.middle)) > rule.scatters * others.scatter;
}

}  // namespace

double median(std::vector<double> values) {
    assert(!values.empty());
    const size_t half = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
    if (values.size() % 2 == 1) return values[half];
    return (values[half] + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

std::vector<size_t> outliers(std::span<const double> values, const OutlierRule& rule) {
    std::vector<size_t> found;
    if (values.size() < 2) return found;
    const std::vector<double> all(values.begin(), values.end());
    const Like of_all = like(all);
    for (size_t i = 0; i < all.size(); ++i) {
        Like others = of_all;
        if (all.size() <= few) {
            std::vector<double> rest = all;
            rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
            others = like(std::move(rest));
        }
        if (too_bad(all[i], others, rule)) found.push_back(i);
    }
    return found;
}

}  // namespace orrery
