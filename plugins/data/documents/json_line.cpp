#include "json_line.h"

#include <algorithm>
#include <cstdint>

#include "orrery/error.h"

namespace documents {

using orrery::Error;

namespace {

/// A position in a line.
struct Reader {
    std::string_view line;
    size_t at = 0;

    [[noreturn]] void fail(const std::string& expected) const {
        throw Error("expected " + expected + " at its byte " + std::to_string(at));
    }
    char space() {  // skips white space; returns the next character, '\0' at the end
        while (at < line.size() && std::string_view(" \t\r\n").find(line[at]) != std::string_view::npos) ++at;
        return at < line.size() ? line[at] : '\0';
    }
    void take(char wanted) {
        if (space() != wanted) fail(std::string("'") + wanted + "'");
        ++at;
    }
    std::string_view string() {
        take('"');
        const size_t begin = at;
        while (at < line.size() && line[at] != '"') at += line[at] == '\\' ? 2 : 1;
        if (at >= line.size()) at = line.size(), fail("the end of a string");
        return line.substr(begin, at++ - begin);
    }
    /// Skips a value: a string, a number or a word, or what is between brackets.
    void value() {
        int depth = 0;
        do {
            const char next = space();
            if (next == '"')
                string();
            else if (next == '{' || next == '[')
                ++depth, ++at;
            else if ((next == '}' || next == ']') && depth > 0)
                --depth, ++at;
            else if ((next == ',' || next == ':') && depth > 0)
                ++at;
            else
                word();
        } while (depth > 0);
    }
    void word() {
        const size_t begin = at;
        while (at < line.size() &&
               (std::string_view("+-._").find(line[at]) != std::string_view::npos ||
                (line[at] >= '0' && line[at] <= '9') || ((line[at] | 32) >= 'a' && (line[at] | 32) <= 'z')))
            ++at;
        if (at == begin) fail("a value");
    }
};

uint32_t hex_of(std::string_view four) {
    uint32_t code = 0;
    for (const char c : four) {
        const char low = static_cast<char>(c | 32);
        if (c >= '0' && c <= '9')
            code = code * 16 + static_cast<uint32_t>(c - '0');
        else if (low >= 'a' && low <= 'f')
            code = code * 16 + static_cast<uint32_t>(low - 'a' + 10);
        else
            throw Error("\\u with \"" + std::string(four) + "\", expected four hex digits");
    }
    return code;
}

void append_utf8(uint32_t code, std::string& to) {
    const auto more = [&](int shift) { to += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
    if (code < 0x80) {
        to += static_cast<char>(code);
    } else if (code < 0x800) {
        to += static_cast<char>(0xc0 | (code >> 6)), more(0);
    } else if (code < 0x10000) {
        to += static_cast<char>(0xe0 | (code >> 12)), more(6), more(0);
    } else {
        to += static_cast<char>(0xf0 | (code >> 18)), more(12), more(6), more(0);
    }
}

}  // namespace

std::string_view json_string(std::string_view line, std::string_view field) {
    Reader reader{line};
    std::string_view found;
    reader.take('{');
    if (reader.space() == '}') return found;
    for (;;) {
        const std::string_view key = reader.string();
        reader.take(':');
        if (key == field && reader.space() == '"')
            found = reader.string();
        else
            reader.value();
        if (reader.space() != ',') break;
        ++reader.at;
    }
    reader.take('}');
    if (reader.space() != '\0') reader.fail("the end of the line");
    return found;
}

void unescape(std::string_view string, std::string& to) {
    for (size_t at = 0; at < string.size();) {
        const size_t plain = std::min(string.find('\\', at), string.size());
        to.append(string.substr(at, plain - at));
        at = plain;
        if (at == string.size()) break;
        const char kind = at + 1 < string.size() ? string[at + 1] : '\0';
        constexpr std::string_view names = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        if (const size_t which = names.find(kind); which != std::string_view::npos && kind != '\0') {
            to += meant[which];
            at += 2;
            continue;
        }
        if (kind != 'u' || at + 6 > string.size())
            throw Error("\\" + std::string(1, kind) + " is not an escape of JSON");
        uint32_t code = hex_of(string.substr(at + 2, 4));
        at += 6;
        if (code >= 0xd800 && code < 0xe000) {  // the first half of a pair
            const bool pair = code < 0xdc00 && at + 6 <= string.size() && string.substr(at, 2) == "\\u";
            const uint32_t low = pair ? hex_of(string.substr(at + 2, 4)) : 0;
            if (low < 0xdc00 || low >= 0xe000) throw Error("half a surrogate pair");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
        append_utf8(code, to);
    }
}

}  // namespace documents
