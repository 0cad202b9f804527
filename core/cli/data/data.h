#pragma once
#include "cli/commands.h"

namespace orrery {

/// `orrery data`: the samples that a step of a run was, or will be, made of.
struct DataCommand {
    int64_t step = 0;
    bool ids = false;  ///< and no text
};

int data_command(const ScriptCommand& script, const DataCommand& command);

}  // namespace orrery
