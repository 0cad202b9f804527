#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace orrery {

/// Median of at least one value; the mean of the middle two if the count is even.
double median(std::vector<double> values);

/// Decides when a value is too far from the others to be chance: all three conditions must hold.
struct OutlierRule {
    bool higher_is_better = true;
    /// The value is below this share of the others' median (above its inverse if lower is better).
    double share = 0.7;
    /// The value's distance from the median exceeds this many times the others' scatter. The scatter is 1.4826 times
    /// their median distance, which is the standard deviation of normal noise. Distances are differences of logarithms.
    double scatters = 3;
    /// The value is off by at least this much, in the values' unit.
    double least = 0;
};

/// Indices of the outliers among `values`, in order. Each value is compared with all others, excluding itself, so that
/// one bad value among three counts. A single value is never an outlier; of two, only the worse can be.
std::vector<size_t> outliers(std::span<const double> values, const OutlierRule& rule);

}  // namespace orrery
