#pragma once
#include <string>
#include <vector>

#include "published/predict.h"

namespace orrery::published {

/// A row to fit on.
struct Sample {
    const std::vector<Prepared>* jobs = nullptr;
    std::string family;
    double step_s = 0;
    double peak_gib = 0;  ///< 0: not measured
};

/// Constants, within their ranges, that make the mean over families of the mean absolute logarithm of predicted over
/// measured small: Gauss-Newton on reweighted squares, damped. Deterministic. Only constants that a sample depends on
/// move. `turns`: iterations at most.
Constants fit(const std::vector<Sample>& samples, const Constants& start, int turns = 30);

/// The constant of memory, by the mean of |predicted / measured - 1| over samples that have a peak, each row
/// alike: the best of a grid.
Constants fit_memory(const std::vector<Sample>& samples, const Constants& start);

/// What fit() makes small.
double misfit(const std::vector<Sample>& samples, const Constants& constants);

}  // namespace orrery::published
