#pragma once
#include <vector>

#include "orrery/plan.h"
#include "run/calibrate/kernel_bench.h"

namespace orrery {

/// The distinct kernels of a plan in the order of classes and their lists, each with the operands that share memory in
/// its first launch and the attributes of the first rank that runs it.
std::vector<KernelCase> kernel_cases(const Plan& plan);

/// A grid of transformer kernels: matrix products over m, n, k in each form of a training step, attention over sequence
/// lengths and heads, norms, losses over vocabularies, elementwise ops, updates and casts. Contains those that the
/// device has, in `dtype` and, where a step uses it, in f32; small ones first.
std::vector<KernelCase> kernel_grid(Device& device, DType dtype);

}  // namespace orrery
