#pragma once
#include <cstdint>
#include <vector>

namespace orrery {

/// The measured cost of one save, in seconds.
struct SaveCost {
    double held_s = 0;   ///< time by which steps were delayed or slowed
    double whole_s = 0;  ///< time from the save's begin to its end
    double step_s = 0;   ///< time of a step without a save
};

/// The costs of the last five saves, because a single save may be untypical, for example while the disk is busy.
class RecentCosts {
public:
    void add(const SaveCost& cost);
    /// The medians of held_s and whole_s, and the newest step_s. All are 0 before the first add.
    SaveCost median() const;

private:
    std::vector<SaveCost> costs_;
};

/// The number of steps between saves that minimizes the time lost to saves and failures (base/failures). At least 1,
/// and enough for one save to end before the next begins. `between_failures_s`: mean time between failures of the whole
/// job.
int64_t steps_between_saves(const SaveCost& cost, double between_failures_s);

}  // namespace orrery
