#include "base/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace orrery {

std::string plural(int64_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with('h') ? "es" : "s");
}

std::string bytes_text(int64_t bytes) {
    constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (std::abs(static_cast<double>(bytes)) < 1024) return fmt::format("{} B", bytes);
    double amount = static_cast<double>(bytes) / 1024;
    size_t unit = 0;
    // Changes to the next unit from 1023.95 on, which would print as 1024.0.
    while (std::abs(amount) >= 1023.95 && unit + 1 < units.size()) {
        amount /= 1024;
        ++unit;
    }
    return fmt::format("{:.1f} {}", amount, units[unit]);
}

std::string count_text(int64_t count) {
    std::string digits = std::to_string(count);
    const size_t first = digits[0] == '-' ? 1 : 0;
    for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
    return digits;
}

std::string seconds_text(double seconds) {
    const double size = std::abs(seconds);
    if (size >= 3.6e6 && size < 3.6e21) return count_text(std::llround(seconds / 3600)) + " h";
    if (size >= 7200) return fmt::format("{:.4g} h", seconds / 3600);
    if (size >= 1000) return fmt::format("{:.4g} min", seconds / 60);
    if (size >= 1 || size == 0) return fmt::format("{:.4g} s", seconds);
    if (size >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
    if (size >= 1e-6) return fmt::format("{:.4g} us", seconds * 1e6);
    return fmt::format("{:.4g} ns", seconds * 1e9);
}

std::string short_text(double amount) {
    constexpr std::array units{"", " K", " M", " G", " T", " P", " E"};
    size_t unit = 0;
    while (std::abs(amount) >= 999.5 && unit + 1 < units.size()) {
        amount /= 1000;
        ++unit;
    }
    const double size = std::abs(amount);
    if (unit == 0 && amount == std::floor(amount)) return fmt::format("{:.0f}", amount);
    const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f}{}", amount, decimals, units[unit]);
}

std::string quote(std::string_view text) {
    constexpr size_t longest = 200;
    std::string out = "\"";
    for (unsigned char c : text.substr(0, longest)) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c < 0x20 || c == 0x7f) {
            out += fmt::format("\\x{:02x}", c);
        } else {
            out += static_cast<char>(c);
        }
    }
    return out + (text.size() > longest ? "...\"" : "\"");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
    std::string out;
    for (const std::string& part : parts) {
        if (&part != &parts.front()) out += separator;
        out += part;
    }
    return out;
}

std::string join_few(const std::vector<std::string>& parts, size_t most) {
    if (parts.size() <= most) return join(parts, ", ");
    const std::vector<std::string> first(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(most));
    return join(first, ", ") + " and " + std::to_string(parts.size() - most) + " more";
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (;;) {
        const size_t end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::string_view trim(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool matches(std::string_view pattern, std::string_view name) {
    size_t at = 0, star = std::string_view::npos, resume = 0, p = 0;
    while (at < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = at;
        } else if (p < pattern.size() && pattern[p] == name[at]) {
            ++p, ++at;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            at = ++resume;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string hex(std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    out.reserve(bytes.size() * 2);
    for (unsigned char byte : bytes) {
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return out;
}

}  // namespace orrery
