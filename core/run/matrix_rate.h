#pragma once
#include <string>

#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// The dtype with the most matrix-product flops in a program; f32 if there are none.
DType matrix_type(const Program& program);

/// Dense matmul rate of one rank's device for this type, in FLOP/s. Of a device with its own memory it is measured over
/// 0.3 s after a second of products, as its clock falls while it is busy; of processors it is what the device states,
/// or else measured over 0.3 s. If 16-bit operands are slower than f32 on processors, it is the f32 rate, because they
/// can be widened. 0: the device states no rate for f32 and must not be timed. Throws Error if there is no memory for
/// it.
double matrix_rate(Device& device, DType dtype);

/// A line for the user if the rate after the last step differs from that before the first by more than 5 %; "" if not.
std::string rates_apart(DType dtype, double first, double last);

}  // namespace orrery
