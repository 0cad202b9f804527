#pragma once
#include <cstdint>

#include "orrery/tensor.h"

namespace orrery {

/// Elements that are infinite or no number, or, with `usable`, so large (2^64 and more) that no model can go on from
/// them: f32 overflows in the first sum of squares. 0 for integers. The tensor is host-readable.
int64_t count_diverged(const Tensor& tensor, bool usable);

}  // namespace orrery
