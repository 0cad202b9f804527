#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace orrery {

/// Of at least one value; the mean of the middle two where there is an even number.
double median(std::vector<double> values);

/// When a value is too far from its like to be chance.
struct OutlierRule {
    bool higher_is_better = true;
    /// Below this share of the others' median (above its inverse, where less is better).
    double share = 0.7;
    /// And by so many times the others' scatter, 1.4826 times their median distance from it (which is the standard
    /// deviation of normal noise), distances being those of logarithms.
    double scatters = 3;
    /// And by at least so much, in the values' unit.
    double least = 0;
};

/// The places of values that are too bad by the rule, in order; of a single value nothing is said, of two the worse is
/// held against the better. Each value is held against all others, without itself, so that one bad among three counts.
std::vector<size_t> outliers(std::span<const double> values, const OutlierRule& rule);

}  // namespace orrery
