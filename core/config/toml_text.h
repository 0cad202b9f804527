#pragma once
#include <string>
#include <string_view>

#include "orrery/config.h"

namespace orrery {

/// `"a\"b"`: a basic string of TOML that reads back equal.
std::string toml_string(std::string_view text);
/// The value as it is written after a key: `300`, `"bf16"`, `["0.7 a.bin"]`.
std::string toml_value(const ConfigValue& value);

}  // namespace orrery
