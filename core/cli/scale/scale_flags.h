#pragma once
#include <CLI/CLI.hpp>

#include "cli/scale/scale.h"

namespace orrery {

/// The flags of `orrery scale`, beside those of every command of a script.
void add_scale_flags(CLI::App& scale, ScaleCommand& command);

}  // namespace orrery
