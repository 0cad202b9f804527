#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Runs the step of `executor` once more, with the inputs that the device still has, and returns the load that is
/// furthest above its limit, of all that o.overflow declares, as dim, index, scope and load: "experts 3 of layers.0.mlp
/// has a load of 171". "" if there is none. Collective.
std::string largest_load(Session& session, Executor& executor);

}  // namespace orrery
