#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "orrery/error.h"

namespace orrery {

/// Parses one JSON document. Throws Error at `where` for bytes that are not UTF-8, syntax errors, duplicate keys
/// (nlohmann would silently use the last) and nesting deeper than 64.
Json parse_json(std::string_view text, const Origin& where);

/// Adds a key that the object does not have yet, without searching for it.
void append(Json& object, std::string key, Json value);

/// Returns JSON as text for messages. Bytes that are not UTF-8, as in a path or a damaged file, become U+FFFD.
std::string message_text(const Json& json);

/// Returns "" if the text is UTF-8, otherwise "byte 0xe9 at offset 12 is not UTF-8".
std::string not_utf8(std::string_view text);

/// Returns the message of an nlohmann exception without its tag "[json.exception.type_error.302] ".
std::string reason_of(const Json::exception& problem);

/// Returns `value` if it is a non-negative integer, else throws Error that begins with `what`; nlohmann would round.
int64_t whole_number(const Json& value, const std::string& what);

}  // namespace orrery
