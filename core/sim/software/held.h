#pragma once
#include <cstdint>
#include <string>

#include "orrery/plan.h"
#include "sim/software/run.h"

namespace orrery {

/// Max bytes of tensors that a rank of class `c` holds at once when the software runs the plan. States are split as in
/// the plan, params and gradients are in the software's buffers, activations are those that it saves. `kinds`: if
/// given, gets a line for each kind of value, largest first (at most 16).
int64_t held_bytes(const Plan& plan, const RankClass& c, const SoftwareRun& run, std::string* kinds = nullptr);

}  // namespace orrery
