#pragma once
#include "cli/commands.h"
#include "plan/cost_table.h"

namespace orrery {

/// `orrery calibrate --refit RUN...`: what runs measured, into the table of -o or the one that is kept. Returns the
/// exit code. Throws Error for runs without costs, and where they are of another machine than the table.
int refit_command(const ScriptCommand& script, const CalibrateCommand& command);

/// To the file of -o, to the user's cache folder (--keep), or to standard output where neither is asked for; says what
/// was written.
void write_table(const CostTable& table, const CalibrateCommand& command);

}  // namespace orrery
