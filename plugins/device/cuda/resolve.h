#pragma once

#include "../kernel_spec.h"

namespace orrery::cuda_device {

inline kernels::rules::Spec spec_of(const KernelSpec& spec) {
    return kernel_spec(spec, "cuda", "f64 is for the reference kernels of the CPU alone");
}

}  // namespace orrery::cuda_device
