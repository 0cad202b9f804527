#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// `"a\"b"`: a basic string of TOML that reads back equal.
std::string toml_string(std::string_view text);

}  // namespace orrery
