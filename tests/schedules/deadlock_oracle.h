#pragma once
#include "orrery/plan.h"
#include "plan/network.h"

namespace orrery::oracle {

/// What check_deadlock says, by another program: each class goes as far as it can, again and again.
void check_deadlock(const Plan& plan, const Network& contracts);

}  // namespace orrery::oracle
