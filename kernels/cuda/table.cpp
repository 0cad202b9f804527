#include "kernels/cuda/kernels.h"

namespace orrery::kernels::cuda {

std::string why_not(const Spec& spec) { return spec.text() + ": no CUDA kernel"; }

std::unique_ptr<Prepared> prepare(Context&, const Spec& spec) { throw Refused(why_not(spec)); }

}  // namespace orrery::kernels::cuda
