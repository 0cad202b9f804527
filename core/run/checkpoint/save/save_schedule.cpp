#include "run/checkpoint/save/save_schedule.h"

namespace orrery {

/// While the time of a step is unknown, "auto" cannot compute the next interval, so the save is due one step later.
bool SaveSchedule::due(int64_t step, bool saving, bool timed) const {
    if (!automatic_) return every_ > 0 && step % every_ == 0;
    return keeps_for_good(keep_, step) || (next_ > 0 && step >= next_ && timed && !saving);
}

void SaveSchedule::began(bool timed) {
    left_out_ = 0;
    if (timed) next_ = 0;
}

}  // namespace orrery
