#pragma once
#include "cli/commands.h"

namespace orrery {

/// Runs `orrery simulate` without a cluster: predicts a step of a run's folder or a script on this machine from
/// measured costs and prints it, for a run's folder with the measured time. Returns the exit code.
int what_if_command(const ScriptCommand& script, const SimulateCommand& command);

}  // namespace orrery
