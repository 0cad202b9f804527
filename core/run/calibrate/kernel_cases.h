#pragma once
#include <vector>

#include "orrery/plan.h"
#include "run/calibrate/kernel_bench.h"

namespace orrery {

/// The distinct kernels of a plan, each once, in the order of classes and of their lists: with the places that their
/// first launch has in common, and the attributes of the first rank that runs it.
std::vector<KernelCase> kernel_cases(const Plan& plan);

/// Kernels of transformers of any size: products over m, n, k in each form of a training step, attention over sequences
/// and heads, norms, losses over vocabularies, element by element, updates and casts over bytes; those that the device
/// has, in `dtype` and, where a step has it so, in f32. Small ones first.
std::vector<KernelCase> kernel_grid(Device& device, DType dtype);

}  // namespace orrery
