#pragma once
#include "cli/commands.h"

namespace orrery {

struct DataCommand {
    int64_t step = 0;
    bool ids = false;  ///< true: print only ids, no text
};

int data_command(const ScriptCommand& script, const DataCommand& command);

}  // namespace orrery
