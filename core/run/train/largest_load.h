#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Runs the step of `executor` once more, with the inputs that the device still has, and returns the largest load of
/// all values that o.overflow declares: "the largest load is 171, of experts 3 in layers.0.moe". "" if there is none.
/// Collective.
std::string largest_load(Session& session, Executor& executor);

}  // namespace orrery
