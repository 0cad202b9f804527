#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Parses a program from text that `print` wrote. Checks only the syntax (see check_program). Throws Error with file,
/// line, the text found and what was expected. `file`: name for messages. `mesh`: receives the mesh of the text.
/// `codecs`: those that it may name besides the library's (Program::codecs).
Program parse(std::string_view text, std::string_view file = "program", std::optional<Mesh>* mesh = nullptr,
              std::vector<std::shared_ptr<const Codec>> codecs = {});

/// Parses an origin from text: "tensor, mlp.lua:9".
Origin parse_origin(std::string_view text);

}  // namespace orrery
