#pragma once
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// The dtype with the most matrix-product flops in a program; f32 if there are none.
DType matrix_type(const Program& program);

/// Dense matmul rate of one rank's device for this type, in FLOP/s: the rate that the device states, or else the
/// median of five timed square products (n = 1024; 8192 on a device with its own memory). If 16-bit operands are slower
/// than f32 it is the f32 rate, because they can be widened. 0: the device states no rate for f32 and must not be
/// timed.
double matrix_rate(Device& device, DType dtype);

}  // namespace orrery
