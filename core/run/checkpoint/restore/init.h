#pragma once
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// Makes the first contents of a param's or state's local part, drawn by the seed, the value's name and the global
/// element index, so that every mesh starts alike. Blocks.
void draw_initial(Device& device, const Value& value, const Tensor& local, const Shape& offset, uint64_t seed);

}  // namespace orrery
