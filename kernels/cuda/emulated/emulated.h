// The CUDA kernels on the host, for tests: every block a set of fibers. Compiled with ORRERY_BLOCKS=emulated.
#pragma once

#include "kernels/cuda/call.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::emulated {

// table(): its functions take an emulated::Call. SpecKernel: from a spec of an op, as the CUDA device hands it over.

}  // namespace orrery::kernels::emulated
