#pragma once
#include "orrery/device.h"

namespace orrery {

/// Measured rates of matrix products in FLOP/s.
struct ProductRates {
    double all = 0;      ///< total rate over three large shapes
    double fastest = 0;  ///< the fastest of the three shapes
};

/// Multiplies small integer matrices, whose product is exact in every type, in each storage order. Throws Error if a
/// result is wrong.
void check_products(Device& device, DType dtype);

/// Times three large shapes, about 7 GFLOP per round; the best of up to six rounds counts for each.
ProductRates measure_products(Device& device, DType dtype);

}  // namespace orrery
