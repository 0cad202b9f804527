#pragma once
#include <string>
#include <string_view>

namespace orrery {

constexpr size_t max_toml_bytes = 1 << 20;
constexpr int max_key_parts = 16;
constexpr size_t max_key_bytes = 512;

/// Throws Error for a TOML text that could exhaust the parser's stack: larger than 1 MiB, or with a key of more than 16
/// dotted parts or 512 bytes (toml++ 3.3 recurses once per part). Also throws for characters beyond ASCII outside
/// quotes and comments.
void check_toml_bounds(std::string_view toml, const std::string& name);

}  // namespace orrery
