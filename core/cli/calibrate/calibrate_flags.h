#pragma once
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace orrery {

/// The flags of `orrery calibrate`, beside those of every command of a script.
void add_calibrate_flags(CLI::App& calibrate, CalibrateCommand& command);

}  // namespace orrery
