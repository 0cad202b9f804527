#pragma once
#include "orrery/error.h"

namespace orrery::nccl_transport {

/// Sets variables that NCCL reads at its first call, unless the user has set them. Throws Error at `origin` for values
/// that the transport does not support. `deterministic`: no sums inside switches.
void prepare_environment(bool deterministic, const Origin& origin);

/// Throws Error when NCCL_COMM_BLOCKING is on: a missing member would block forever instead of causing an error.
void refuse_blocking();

}  // namespace orrery::nccl_transport
