#pragma once
#include <cstdint>

namespace orrery {

/// What a save was measured to cost, in seconds.
struct SaveCost {
    double held_s = 0;   ///< that steps stood still for it, or were slower by
    double whole_s = 0;  ///< from its begin to its end
    double step_s = 0;   ///< of a step beside none
};

/// The steps from one save to the next with which most gets done (base/failures), 1 at least, and not so few that one
/// would begin before the one before it ends. `between_failures_s`: of the whole job.
int64_t steps_between_saves(const SaveCost& cost, double between_failures_s);

}  // namespace orrery
