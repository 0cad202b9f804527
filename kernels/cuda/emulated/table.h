// The CUDA kernels on the host, for tests: every block a set of fibers. Compiled with ORRERY_BLOCKS=emulated.
#pragma once

#include "kernels/cuda/call.h"

namespace orrery::kernels::emulated {

/// Its functions take an emulated::Call.
const Kernels& table();

}  // namespace orrery::kernels::emulated
