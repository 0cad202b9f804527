#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Runs the step that has ended once more, on the same inputs, params and states, and reads each gradient where the
/// update does: the first param whose gradient is not finite, with the elements that are not, on the first rank that
/// has such; "" where all gradients are finite. The same text on every rank. Collective.
std::string first_bad_gradient(Session& session, Executor& executor);

}  // namespace orrery
