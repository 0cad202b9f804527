#pragma once
#include <string>

#include "run/session.h"

namespace orrery {

/// Proves that every rank sees the folder that rank 0 writes: nodes with a folder each could not read one another's
/// checkpoints. Throws Error naming the rank and host that do not. Collective.
void require_shared(Session& session, const std::string& folder);

}  // namespace orrery
