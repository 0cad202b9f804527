#pragma once
#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace orrery {

/// `orrery data`: the samples that a step of a run was, or will be, made of.
struct DataCommand {
    int64_t step = 0;
    bool ids = false;  ///< and no text
};

/// The flags of `orrery data`, beside those of every command of a script.
void add_data_flags(CLI::App& data, DataCommand& command);
int data_command(const ScriptCommand& script, const DataCommand& command);

}  // namespace orrery
