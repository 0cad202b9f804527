// Kernels that plugins bring for their ops.
#pragma once

#include <optional>

#include "resolve.h"

namespace orrery::cpu_device {

struct OpLaunch {
    Launch launch;
    int64_t scratch = 0;  ///< bytes that it asks its context for
};

/// nullopt: no plugin brought an op of this name. Throws Error with the reason where its plugin cannot run the spec
/// here. `reference`: its kernel "reference", whose floats are f64: others are widened before it and rounded after.
std::optional<OpLaunch> plugin_launch(const KernelSpec& spec, int threads, bool reference);

}  // namespace orrery::cpu_device
