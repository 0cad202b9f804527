#pragma once
#include "cli/commands.h"

namespace orrery {

/// Runs `orrery calibrate --refit RUN...`: merges the costs that runs measured into the table of -o or the cached one.
/// Returns the exit code. Throws Error for runs without costs, or of another machine than the table.
int refit_command(const ScriptCommand& script, const CalibrateCommand& command);

}  // namespace orrery
