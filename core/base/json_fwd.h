#pragma once
#include <nlohmann/json_fwd.hpp>

namespace orrery {

/// Keeps the order of keys, so that what we write reads as we wrote it. Headers name it; base/json.h defines it.
using Json = nlohmann::ordered_json;

}  // namespace orrery
