#pragma once
#include <cstdint>
#include <vector>

namespace orrery {

/// What a save was measured to cost, in seconds.
struct SaveCost {
    double held_s = 0;   ///< that steps stood still for it, or were slower by
    double whole_s = 0;  ///< from its begin to its end
    double step_s = 0;   ///< of a step beside none
};

/// What saves cost by the last few of them: one alone may have met a disk that was busy.
class RecentCosts {
public:
    void add(const SaveCost& cost);
    /// Of the last five, or of as many as there are, the median of each number; the newest time of a step.
    SaveCost median() const;

private:
    std::vector<SaveCost> costs_;
};

/// The steps from one save to the next with which most gets done (base/failures), 1 at least, and not so few that one
/// would begin before the one before it ends. `between_failures_s`: of the whole job.
int64_t steps_between_saves(const SaveCost& cost, double between_failures_s);

}  // namespace orrery
