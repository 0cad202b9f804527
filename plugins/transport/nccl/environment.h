#pragma once
#include "orrery/error.h"

namespace orrery::nccl_transport {

/// Sets the variables that NCCL reads when it is first called and the user has not set. Throws Error at `origin` for
/// what the transport cannot do with. `deterministic`: no sums are made inside switches.
void prepare_environment(bool deterministic, const Origin& origin);

/// Throws Error where NCCL_COMM_BLOCKING is on: a member that does not come would be a hang and no error.
void refuse_blocking();

}  // namespace orrery::nccl_transport
