#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace orrery {

/// Reads a JSON file that another program wrote. Throws Error that begins with the path if the file is missing, not a
/// regular file, longer than `most_bytes`, of a known other kind, or not JSON. `remedy`: a line to append if it is
/// missing.
Json read_json(const std::string& path, int64_t most_bytes, std::string_view remedy = "");

}  // namespace orrery
