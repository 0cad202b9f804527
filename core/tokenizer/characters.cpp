#include "tokenizer/characters.h"

#include <oniguruma.h>

#include <array>
#include <cstring>
#include <vector>

namespace orrery::tokenizer {
namespace {

/// Adds class `as` to all characters that have libonig's property `name`.
void mark(std::vector<uint8_t>& classes, const char* name, CharacterClass as) {
    const OnigEncoding encoding = ONIG_ENCODING_UTF8;
    std::string text(name);
    auto* begin = reinterpret_cast<OnigUChar*>(text.data());  // libonig does not change the text
    const int property = ONIGENC_PROPERTY_NAME_TO_CTYPE(encoding, begin, begin + text.size());
    OnigCodePoint single = 0;
    const OnigCodePoint* ranges = nullptr;
    if (property < 0 || encoding->get_ctype_code_range(static_cast<OnigCtype>(property), &single, &ranges) != 0) return;
    for (OnigCodePoint i = 0; i < ranges[0]; ++i)
        for (OnigCodePoint c = ranges[1 + 2 * i]; c <= ranges[2 + 2 * i] && c < classes.size(); ++c) classes[c] |= as;
}

std::vector<uint8_t> make_classes() {
    std::vector<uint8_t> classes(0x110000, 0);
    mark(classes, "L", is_letter);
    mark(classes, "N", is_number);
    mark(classes, "Space", is_space);
    for (const char* name : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"}) mark(classes, name, is_word);
    mark(classes, "Cn", is_unknown);
    return classes;
}

std::array<char32_t, 256> make_alphabet() {
    std::array<char32_t, 256> alphabet{};
    char32_t next = 256;
    for (size_t byte = 0; byte < 256; ++byte) {
        const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        alphabet[byte] = prints ? static_cast<char32_t>(byte) : next++;
    }
    return alphabet;
}

/// Returns a table from each character of GPT-2's alphabet, all below U+0144 (324), to its byte; -1 for others.
std::array<int16_t, 324> make_bytes() {
    std::array<int16_t, 324> bytes{};
    bytes.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) bytes[byte_alphabet()[byte]] = static_cast<int16_t>(byte);
    return bytes;
}

/// Returns a number of ASCII bytes with which a text of `left` bytes begins: a multiple of eight.
size_t ascii_ahead(const char* at, size_t left) {
    size_t done = 0;
    for (uint64_t eight = 0; done + 8 <= left; done += 8) {
        std::memcpy(&eight, at + done, 8);
        if (eight & 0x8080808080808080u) break;
    }
    return done;
}

}  // namespace

int64_t next_character(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const size_t length = byte(at) < 0x80   ? 1
                          : byte(at) < 0xc2 ? 0
                          : byte(at) < 0xe0 ? 2
                          : byte(at) < 0xf0 ? 3
                          : byte(at) < 0xf5 ? 4
                                            : 0;
    if (length == 0) return -1;
    // Rejects overlong forms, surrogates and characters above U+10FFFF.
    for (size_t i = 1; i < length; ++i) {
        if (at + i == text.size()) return 0;
        const unsigned least = i > 1 ? 0x80 : byte(at) == 0xe0 ? 0xa0 : byte(at) == 0xf0 ? 0x90 : 0x80;
        const unsigned most = i > 1 ? 0xbf : byte(at) == 0xed ? 0x9f : byte(at) == 0xf4 ? 0x8f : 0xbf;
        if (byte(at + i) < least || byte(at + i) > most) return -static_cast<int64_t>(i);
    }
    return static_cast<int64_t>(length);
}

size_t valid_until(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        at += ascii_ahead(text.data() + at, text.size() - at);
        if (at == text.size()) break;
        const int64_t length = next_character(text, at);
        if (length <= 0) return at;
        at += static_cast<size_t>(length);
    }
    return at;
}

void append_character(std::string& text, char32_t character) {
    const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (character < 0x80) {
        add(character);
    } else if (character < 0x800) {
        add(0xc0 | character >> 6);
        add(0x80 | (character & 0x3f));
    } else if (character < 0x10000) {
        add(0xe0 | character >> 12);
        add(0x80 | (character >> 6 & 0x3f));
        add(0x80 | (character & 0x3f));
    } else {
        add(0xf0 | character >> 18);
        add(0x80 | (character >> 12 & 0x3f));
        add(0x80 | (character >> 6 & 0x3f));
        add(0x80 | (character & 0x3f));
    }
}

const uint8_t* character_classes() {
    static const std::vector<uint8_t> classes = make_classes();
    return classes.data();
}

int64_t count_unknown(std::string_view text) {
    const uint8_t* classes = character_classes();
    int64_t count = 0;
    for (size_t at = 0; at < text.size();) {
        at += ascii_ahead(text.data() + at, text.size() - at);
        if (at == text.size()) break;
        count += (classes[character_at(text.data() + at)] & is_unknown) != 0;
        at += length_of(text[at]);
    }
    return count;
}

const char32_t* byte_alphabet() {
    static const std::array<char32_t, 256> alphabet = make_alphabet();
    return alphabet.data();
}

int byte_of(char32_t character) {
    static const std::array<int16_t, 324> bytes = make_bytes();
    return character < bytes.size() ? bytes[character] : -1;
}

bool bytes_of(std::string_view text, std::string& out) {
    out.clear();
    for (size_t at = 0; at < text.size(); at += length_of(text[at])) {
        const int byte = byte_of(character_at(text.data() + at));
        if (byte < 0) return false;
        out.push_back(static_cast<char>(byte));
    }
    return true;
}

}  // namespace orrery::tokenizer
