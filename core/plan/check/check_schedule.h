#pragma once
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// Checks that every stage runs every micro-batch forward and (if `backward`) backward exactly once, on one rank,
/// without deadlock. F waits for F of the previous stage, B for F and for B of the next stage, W for B. Throws Error at
/// the script line of the rank's order (`lines`), else of the schedule, naming fragment, stage and rank, and what
/// blocks them.
void check_schedule(const Schedule& schedule, int64_t micros, int stages, bool backward,
                    const std::vector<Origin>& lines = {});

}  // namespace orrery
