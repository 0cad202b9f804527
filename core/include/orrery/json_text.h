#pragma once
#include <string>
#include <string_view>

#include "orrery/api.h"

namespace orrery {

/// Returns the text under `field` of an object of JSON, in UTF-8 without escapes. Throws Error if the bytes are not one
/// object of JSON, or have no such text; the message does not say where the bytes are from. Linear in their number.
ORRERY_API std::string json_text(std::string_view object, std::string_view field);

}  // namespace orrery
