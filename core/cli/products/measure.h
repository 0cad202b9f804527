#pragma once
#include "orrery/device.h"

namespace orrery {

/// In FLOP/s.
struct ProductRates {
    double all = 0;      ///< over three large shapes
    double fastest = 0;  ///< of one of them
};

/// Multiplies small matrices of small integers, whose product is exact in every type, stored either way. Throws Error
/// where it is wrong.
void check_products(Device& device, DType dtype);

/// The best of up to six times for each of three large shapes, about 7 GFLOP a round.
ProductRates measure_products(Device& device, DType dtype);

}  // namespace orrery
