#pragma once
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace orrery {

void add_tokenize_flags(CLI::App& tokens, TokenizeCommand& command);

}  // namespace orrery
