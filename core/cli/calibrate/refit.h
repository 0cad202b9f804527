#pragma once
#include "cli/commands.h"

namespace orrery {

/// `orrery calibrate --refit RUN...`: what runs measured, into the table of -o or the one that is kept. Returns the
/// exit code. Throws Error for runs without costs, and where they are of another machine than the table.
int refit_command(const ScriptCommand& script, const CalibrateCommand& command);

}  // namespace orrery
