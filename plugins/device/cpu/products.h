// How this device runs matrix products: their kinds by name, and what their speed and their last bits depend on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace orrery::cpu_device {

/// "onednn", "native", "blocks": the default first.
std::vector<std::string> product_names();
std::string name_of(kernels::Products kind);
/// nullopt where there is no such kind.
std::optional<kernels::Products> parse_products(std::string_view name);

/// "portable", "avx2", "avx512"
std::string_view name_of(kernels::cpu::Isa isa);

/// A line each: processor, its stepping and microcode, the instruction set in use, oneDNN, the digest of this code,
/// threads. `cpuinfo`: of /proc/cpuinfo.
std::string machine_of(std::string_view cpuinfo, int threads);

/// As Device::arithmetic. `cpuinfo`: of /proc/cpuinfo; `reference`: the reference kernels run.
std::string arithmetic_of(std::string_view cpuinfo, bool reference);

/// The GNU build id of the file that holds this code, in hexadecimal digits; "" when it has none.
std::string build_id();

}  // namespace orrery::cpu_device
