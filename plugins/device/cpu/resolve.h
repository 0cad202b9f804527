// From the core's words for an op to a call of one kernel.
#pragma once

#include <functional>

#include "kernels/kernels.h"
#include "orrery/device.h"

namespace orrery::cpu_device {

using Launch = std::function<void(kernels::Context&, std::span<const Tensor>)>;

/// Bytes of scratch that a launch of this spec takes from a context of so many threads, with this kind of products.
int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads, kernels::Products products);
/// With any: what plans reserve. Two kinds or two processors have the same plan.
int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads);

/// Throws Error with the reason when the spec cannot run here. `reference`: f64 is allowed.
Launch resolve(const KernelSpec& spec, const kernels::Kernels& kernels, bool reference);

}  // namespace orrery::cpu_device
