#pragma once
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// Fills a rank's block of a param or state with initial values. They depend only on the seed, the value's name and the
/// global element index, so that every mesh starts with the same values. Blocks.
void draw_initial(Device& device, const Value& value, const Tensor& local, const Shape& offset, uint64_t seed);

}  // namespace orrery
