#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace orrery {

/// Median of at least one value; the mean of the middle two if the count is even.
double median(std::vector<double> values);

/// The conditions for a value among others to be an outlier: all three must hold.
struct OutlierRule {
    bool higher_is_better = true;
    /// An outlier is below this share of the other values' median or, if lower is better, above median / share.
    double share = 0.7;
    /// An outlier's distance from the median exceeds this many times the other values' scatter: 1.4826 times their
    /// median distance, which is the standard deviation of normal noise. Distances are differences of logarithms.
    double scatters = 3;
    /// An outlier differs from the median by more than this, in the values' unit.
    double least = 0;
};

/// Indices of the outliers among `values`, in order. Each value is compared with all others, excluding itself, so that
/// one bad value among three counts. A single value is never an outlier; of two, only the worse can be.
std::vector<size_t> outliers(std::span<const double> values, const OutlierRule& rule);

}  // namespace orrery
