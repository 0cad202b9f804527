#include "yaml.h"

#include <algorithm>
#include <cstdint>

#include "orrery/error.h"

namespace orrery::kubernetes {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Words that a parser of YAML 1.1 reads as a truth value or as nothing.
bool is_reserved(std::string_view text) {
    static constexpr std::string_view words[] = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
    return std::ranges::any_of(words, [&](std::string_view word) {
        return std::ranges::equal(word, text, {}, {}, [](char c) { return is_letter(c) ? c | 0x20 : c; });
    });
}

bool is_plain(std::string_view text) {
    if (text.empty() || (!is_letter(text[0]) && text[0] != '/') || is_reserved(text)) return false;
    return std::ranges::all_of(text, [](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
    });
}

[[noreturn]] void refuse(std::string_view what, const char* why) {
    throw Error(std::string(what) + " " + why + ", which a manifest cannot hold\n  leave it out");
}

/// Takes one character of UTF-8 off `text` and returns its number. Throws Error for other bytes.
uint32_t next(std::string_view& text, std::string_view what) {
    const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const uint32_t first = at(0);
    const size_t more = first < 0x80 ? 0 : first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    static constexpr uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint32_t code = more == 0 ? first : first & (0x3FU >> more);
    bool valid = first < 0x80 || (first >= 0xC2 && first < 0xF5);
    for (size_t i = 1; i <= more; ++i) {
        valid = valid && (at(i) & 0xC0U) == 0x80;
        code = code << 6 | (at(i) & 0x3FU);
    }
    if (!valid || code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        refuse(what, "has bytes that are not UTF-8");
    text.remove_prefix(more + 1);
    return code;
}

std::string escaped(uint32_t code) {
    static constexpr char digits[] = "0123456789abcdef";
    if (code == '\n') return "\\n";
    if (code == '\t') return "\\t";
    std::string text = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text += digits[code >> shift & 15];
    return text;
}

/// Whether YAML wants a character escaped, or an editor would hide it: controls, line separators, the byte order mark.
bool is_hidden(uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 || code == 0xFEFF ||
           code == 0xFFFE || code == 0xFFFF;
}

}  // namespace

std::string scalar(std::string_view text, std::string_view what) {
    if (is_plain(text)) return std::string(text);
    std::string quoted = "\"";
    while (!text.empty()) {
        const std::string_view before = text;
        const uint32_t code = next(text, what);
        if (code == 0) refuse(what, "has a NUL byte");
        if (is_hidden(code)) {
            quoted += escaped(code);
            continue;
        }
        if (code == '"' || code == '\\') quoted += '\\';
        quoted += before.substr(0, before.size() - text.size());
    }
    return quoted + "\"";
}

std::string unexpanded(std::string_view text, std::string_view what) {
    std::string doubled;
    for (const char c : text) doubled += c == '$' ? "$$" : std::string(1, c);
    return scalar(doubled, what);
}

std::string indented(std::string_view block, size_t depth) {
    std::string all;
    while (!block.empty()) {
        const size_t line = std::min(block.find('\n'), block.size() - 1) + 1;
        all += std::string(depth, ' ').append(block.substr(0, line));
        block.remove_prefix(line);
    }
    return all;
}

}  // namespace orrery::kubernetes
