#pragma once
#include <CLI/CLI.hpp>

#include "cli/preflight/preflight.h"

namespace orrery {

/// The subcommand `preflight`, whose flags fill `command`.
CLI::App* add_preflight(CLI::App& app, PreflightCommand& command);

}  // namespace orrery
