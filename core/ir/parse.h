#pragma once
#include <optional>
#include <string_view>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Reads the text that `print` writes. Checks only the syntax; `check_program` checks the rest. Throws Error with file,
/// line, the text found and what was expected. `file`: name for messages. `mesh`: set to the mesh of the text, if any.
Program parse(std::string_view text, std::string_view file = "program", std::optional<Mesh>* mesh = nullptr);

/// Reads the text of an origin: "tensor, mlp.lua:9".
Origin parse_origin(std::string_view text);

}  // namespace orrery
