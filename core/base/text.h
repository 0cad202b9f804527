#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Formats a count: "1 stage", "2 stages", "8 micro-batches".
std::string plural(int64_t count, std::string_view what);
/// Formats a number of bytes: "512 B", "8.0 KiB", "1.5 GiB".
std::string bytes_text(int64_t bytes);
/// Formats a count: "1,234,567".
std::string count_text(int64_t count);
/// Formats a time with four digits, up to 1000 s in seconds, then in minutes, from two hours on in hours: "14.12
/// us", "134.2 s", "16.67 min", "12.5 h".
std::string seconds_text(double seconds);
/// Formats a number with three digits and its thousands as a letter: "950", "10.7 M", "1.20 T".
std::string short_text(double amount);

/// Quotes a text, `"a b"`, with control characters, quotes and backslashes escaped. It is cut after 200 bytes.
std::string quote(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// Lists at most `most` parts: "a, b and 38 more".
std::string join_few(const std::vector<std::string>& parts, size_t most = 2);
std::vector<std::string> split(std::string_view text, char separator);
/// Removes spaces, tabs and line ends at both sides.
std::string_view trim(std::string_view text);
/// Whether the name matches the pattern, in which * stands for any characters.
bool matches(std::string_view pattern, std::string_view name);
std::string hex(std::string_view bytes);

}  // namespace orrery
