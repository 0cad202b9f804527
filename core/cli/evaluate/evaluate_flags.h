#pragma once
#include <CLI/CLI.hpp>

#include "cli/evaluate/evaluate.h"

namespace orrery {

/// The flags of `orrery evaluate`, beside those of every command of a script.
void add_evaluate_flags(CLI::App& evaluate, EvaluateCommand& command);

}  // namespace orrery
