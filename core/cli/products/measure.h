#pragma once
#include "orrery/device.h"

namespace orrery {

/// Measured rates of three large matrix products in FLOP/s.
struct ProductRates {
    double all = 0;      ///< of the three products together
    double fastest = 0;  ///< of the fastest of the three
};

/// Checks matrix products in each storage order, on small integers, which are exact in every dtype. Throws Error if a
/// result is wrong.
void check_products(Device& device, DType dtype);

/// Times three large matrix products, 7 GFLOP in all. Each runs up to six times; its fastest run counts.
ProductRates measure_products(Device& device, DType dtype);

}  // namespace orrery
