#pragma once
#include <vector>

#include "orrery/schedule.h"

namespace orrery {

/// Every stage runs every micro-batch forward and (with `backward`) backward exactly once, on one rank, in an order
/// that ends: F after F of the stage before, B after F and after B of the stage behind, W, where there is any, after
/// its B. Throws Error at the line of the rank's order (`lines`), or else at the schedule's origin, naming fragment,
/// stage and rank; of an order that waits for itself, what each rank waits for.
void check_schedule(const Schedule& schedule, int64_t micros, int stages, bool backward,
                    const std::vector<Origin>& lines = {});

}  // namespace orrery
