#pragma once
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// The type of the operands in most of a program's matrix products, by flops; f32 when it has none.
DType matrix_type(const Program& program);

/// Dense rate of one rank's device for operands of this type, in FLOP/s: what the device states, otherwise the median
/// of five [1024,1024] x [1024,1024] products; that of f32 where 16-bit operands are slower, since they can be widened.
/// 0 when the device states no rate even for f32: it is not to be timed.
double matrix_rate(Device& device, DType dtype);

}  // namespace orrery
