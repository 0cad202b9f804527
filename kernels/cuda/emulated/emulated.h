// The CUDA kernels on the host, for tests: every block is a set of fibers. Compiled with ORRERY_BLOCKS=emulated.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::emulated {

// table(): its functions take an emulated::Call. SpecKernel: runs a spec of an op like the CUDA device.

}  // namespace orrery::kernels::emulated
