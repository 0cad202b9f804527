#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Repeats the step of `executor` on the inputs that are still on the device and returns the load of o.overflow with
/// the largest excess over its limit, its dim, index and scope: "expert 3 of layers.0.mlp has a load of 171, 128 fit".
/// Returns "" if no load exceeds its limit. Collective.
std::string largest_load(Session& session, Executor& executor);

}  // namespace orrery
