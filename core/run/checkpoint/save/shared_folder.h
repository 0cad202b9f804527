#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Checks that all ranks see the same folder: rank 0 creates a file in it and the others look for it. Throws Error
/// naming the first rank and host that does not see it within 3 s. Collective.
void require_shared(Session& session, const std::string& folder);

}  // namespace orrery
