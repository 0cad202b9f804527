#pragma once
#include <string>
#include <string_view>

#include "orrery/config.h"

namespace orrery {

/// Returns a TOML basic string that reads back as the text: `"a\"b"`.
std::string toml_string(std::string_view text);
/// Returns a value as written after a key: `300`, `"bf16"`, `["0.7 a.bin"]`.
std::string toml_value(const ConfigValue& value);

}  // namespace orrery
