#pragma once
#include "cli/commands.h"

namespace orrery {

/// `orrery simulate` without a cluster: a run's folder or a script on this machine, by measured costs. Prints what a
/// step would take and, of a run, what it took. Returns the exit code.
int what_if_command(const ScriptCommand& script, const SimulateCommand& command);

}  // namespace orrery
