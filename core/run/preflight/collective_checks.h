#pragma once
#include <vector>

#include "run/preflight/figures.h"
#include "run/preflight/trial_line.h"

namespace orrery {

struct CollectiveCheckOptions {
    int repeats = 5;
    double call_s = 0.02;  ///< tensors grow until a call takes this long
};

/// Times each collective among the ranks of a TrialLine, with the smallest tensors and with large ones, and checks up
/// to 4,096 elements of each result. Collective; returns the same figures on all ranks. The caller sets `reach`,
/// `group` and `ranks` of the figures.
std::vector<CollectiveFigures> check_collectives(TrialLine& line, const CollectiveCheckOptions& options);

}  // namespace orrery
