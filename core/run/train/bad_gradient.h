#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Runs the step that just ended once more, on the same inputs, params and states, and reads each gradient before the
/// update consumes it. Returns the first param with a gradient that is not finite: its name, the number of bad
/// elements, and the first rank that has them; "" if all gradients are finite. Every rank returns the same text.
/// Collective.
std::string first_bad_gradient(Session& session, Executor& executor);

}  // namespace orrery
