#pragma once
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// Checks that every stage runs each micro-batch forward (F) and, if `backward`, backward (B, and W where it is split
/// off) exactly once, on one rank, and that ranks do not deadlock: F waits for F of the previous stage, B for F and for
/// B of the next stage, W for B. Throws Error at the script line of the rank's order (`lines`), else of the schedule.
void check_schedule(const Schedule& schedule, int64_t micros, int stages, bool backward,
                    const std::vector<Origin>& lines = {});

}  // namespace orrery
