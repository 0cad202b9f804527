#pragma once
#include "cli/commands.h"

namespace orrery {

/// Runs `orrery calibrate --refit RUN...`: merges costs that runs have measured into the table of -o, or else the
/// cached one. Returns the exit code. Throws Error for runs without costs, or of a machine other than the table's.
int refit_command(const ScriptCommand& script, const CalibrateCommand& command);

}  // namespace orrery
