#pragma once
#include <string>
#include <string_view>

#include "orrery/config.h"

namespace orrery {

/// Quotes a text as a TOML basic string: `"a\"b"`.
std::string toml_string(std::string_view text);
/// Formats a value as TOML writes it after a key: `300`, `"bf16"`, `["0.7 a.bin"]`.
std::string toml_value(const ConfigValue& value);

}  // namespace orrery
