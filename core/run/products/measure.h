#pragma once
#include "orrery/device.h"
#include "run/products/products.h"

namespace orrery {

/// Multiplies on the device with its products in use: small matrices of small integers, whose product is exact in
/// every type, stored either way; throws Error where it is wrong. `timed`: then three large shapes, each at best of up
/// to six times, about 7 GFLOP a round. `name`: of the result.
TriedProducts measure_products(Device& device, const std::string& name, DType dtype, bool timed);

}  // namespace orrery
