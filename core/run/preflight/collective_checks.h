#pragma once
#include <vector>

#include "run/preflight/figures.h"
#include "run/preflight/trial_line.h"

namespace orrery {

struct CollectiveCheckOptions {
    int repeats = 5;
    double call_s = 0.02;  ///< tensors grow until a call takes so long
};

/// Times each collective among the line's ranks, with the smallest tensors and with large ones, and looks at up to
/// 4,096 elements of each result. Collective; the same on all ranks of the line, `reach`, `group` and `ranks` left to
/// the caller.
std::vector<CollectiveFigures> check_collectives(TrialLine& line, const CollectiveCheckOptions& options);

}  // namespace orrery
