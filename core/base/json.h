#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "orrery/error.h"

namespace orrery {

/// Parses one JSON document. Throws Error at `where` for bytes that are not UTF-8, bad syntax, a duplicate key
/// (nlohmann would keep the last one silently) or nesting deeper than 64.
Json parse_json(std::string_view text, const Origin& where);

/// Adds a key that the object has not, without looking for it.
void append(Json& object, std::string key, Json value);

/// For other ranks and for people: bytes that are not UTF-8, as a path or a damaged file may have, become U+FFFD.
std::string message_text(const Json& json);

/// "" when the text is UTF-8, otherwise "byte 0xe9 at offset 12 is not UTF-8".
std::string not_utf8(std::string_view text);

/// What the library says, without its tag "[json.exception.type_error.302] ".
std::string reason_of(const Json::exception& problem);

/// An integer that is not negative. Throws Error that begins with `what`; nlohmann would round, and wrap.
int64_t whole_number(const Json& value, const std::string& what);

}  // namespace orrery
