#pragma once
#include <nlohmann/json_fwd.hpp>

namespace orrery {

/// JSON that keeps the order of keys, so that files that are read and written keep it. Headers use this name;
/// base/json.h includes the definition.
using Json = nlohmann::ordered_json;

}  // namespace orrery
