#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "orrery/error.h"

namespace orrery {

/// Keeps the order of keys, so that what we write reads as we wrote it.
using Json = nlohmann::ordered_json;

/// Parses one JSON document. Throws Error at `where` for bad syntax, a duplicate key (nlohmann would keep the last
/// one silently) or nesting deeper than 64.
Json parse_json(std::string_view text, const Origin& where);

}  // namespace orrery
