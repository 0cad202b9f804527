#pragma once
#include "orrery/api.h"
#include "orrery/error.h"

namespace orrery {

int exit_code(Fault fault);

/// Runs the `orrery` program. Returns the exit code: 0 ok, 1 failed, 2 usage, 75 stopped by a signal, 128 + signal.
ORRERY_API int command_line(int argc, char** argv);

}  // namespace orrery
