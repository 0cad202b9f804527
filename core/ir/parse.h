#pragma once
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Reads what `print` wrote. Checks the syntax only; `verify` checks the rest. Throws Error with file, line, what was
/// found and what is expected. `file` is for messages.
Program parse(std::string_view text, std::string_view file = "program");

/// "tensor, mlp.lua:9" back to an origin.
Origin parse_origin(std::string_view text);

}  // namespace orrery
