#pragma once
#include "orrery/device.h"

namespace orrery {

/// Measured rates of matrix products in FLOP/s.
struct ProductRates {
    double all = 0;      ///< rate over three large shapes together
    double fastest = 0;  ///< rate of the fastest of the three shapes
};

/// Checks matrix products of small integers, which are exact in every dtype, in each storage order. Throws Error if a
/// result is wrong.
void check_products(Device& device, DType dtype);

/// Times matrix products of three large shapes, 7 GFLOP in all; of each, the fastest of up to six runs counts.
ProductRates measure_products(Device& device, DType dtype);

}  // namespace orrery
