#pragma once
#include "cli/commands.h"

namespace orrery {

/// Runs `orrery simulate` without a cluster: predicts a step of a script or of a run's folder on this machine from
/// measured costs. Prints the prediction, for a run's folder with the measured time. Returns the exit code.
int what_if_command(const ScriptCommand& script, const SimulateCommand& command);

}  // namespace orrery
