#pragma once
#include <optional>
#include <string_view>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Reads what `print` wrote. Checks the syntax only; `check_program` checks the rest. Throws Error with file, line,
/// what was found and what is expected. `file` is for messages; `mesh` becomes that of the layouts, if there are any.
Program parse(std::string_view text, std::string_view file = "program", std::optional<Mesh>* mesh = nullptr);

/// "tensor, mlp.lua:9" back to an origin.
Origin parse_origin(std::string_view text);

}  // namespace orrery
