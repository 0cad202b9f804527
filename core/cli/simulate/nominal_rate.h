#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "orrery/config.h"
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery {

/// The key of an accelerator's `dense_tflops` for matrix products of a type: "bf16", "fp8", "tf32".
std::string rate_name(DType type, bool tf32);

/// FLOP/s that an accelerator's data sheet states for dense products. `driver_name`: what its driver calls it, one of
/// `driver_names` in the cluster files (*.toml) of `folder`. `rate`: as rate_name. 0: no file has it, or the folder is
/// not there; files that cannot be read are left out.
double nominal_rate(const std::filesystem::path& folder, std::string_view driver_name, const std::string& rate);

/// FLOP/s of a device with its own memory by its data sheet, in products of the type in which the program has the
/// largest number of flops. `config`: of the run. 0: not known.
double nominal_flops(Device& device, const Program& program, Config& config);

}  // namespace orrery
