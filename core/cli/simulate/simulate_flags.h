#pragma once
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace orrery {

// The flags of `orrery simulate` and `orrery plan`, beside those of every command of a script.
void add_simulate_flags(CLI::App& simulate, SimulateCommand& command);
void add_plan_flags(CLI::App& plan, PlanCommand& command);

}  // namespace orrery
