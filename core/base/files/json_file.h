#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace orrery {

/// The JSON of a file of somebody else. Throws Error that begins with the path: it is not there, no regular file,
/// longer than `most_bytes`, of another kind, or no JSON. `remedy`, a line, stands behind what is not there.
Json read_json(const std::string& path, int64_t most_bytes, std::string_view remedy = "");

}  // namespace orrery
