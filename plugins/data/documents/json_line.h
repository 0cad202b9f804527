// A string in a line of JSON.
#pragma once
#include <string>
#include <string_view>

namespace documents {

/// What is between the quotes of the string under the key `field` of an object of JSON, still with its escapes. The
/// view's data is null if the object has no such key. Throws Error that says what is wrong, but not in which line.
std::string_view json_string(std::string_view line, std::string_view field);

/// Appends a string of JSON without its quotes, in UTF-8 without escapes. Throws Error with what is wrong alone.
void unescape(std::string_view string, std::string& to);

}  // namespace documents
