#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::tokenizer {

/// How the bytes from `at` on begin, by RFC 3629: a character (its length), the beginning of one that has not all come
/// (0), or bytes that belong to none (minus how many).
int64_t next_character(std::string_view text, size_t at);
/// Offset of the first byte that is not UTF-8 (RFC 3629), the text's size when all is.
size_t valid_until(std::string_view text);

/// Bytes of the character that begins with this byte, in a text of valid UTF-8.
inline size_t length_of(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// Begin of the character that ends at `end`, which is not 0, in a text of valid UTF-8.
inline size_t before(std::string_view text, size_t end) {
    do --end;
    while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
    return end;
}

/// The character at `at` of valid UTF-8.
inline char32_t character_at(const char* at) {
    const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
    const char32_t first = byte(0);
    if (first < 0x80) return first;
    if (first < 0xe0) return (first & 0x1f) << 6 | (byte(1) & 0x3f);
    if (first < 0xf0) return (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    return (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

void append_character(std::string& text, char32_t character);

/// What a character is, as libonig 6.9.8 has it (Unicode 14).
enum CharacterClass : uint8_t {
    is_letter = 1,   ///< \p{L}
    is_number = 2,   ///< \p{N}
    is_space = 4,    ///< \s, White_Space
    is_word = 8,     ///< \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
    is_unknown = 16  ///< not assigned in Unicode 14: newer, or none
};

/// For every character its classes, [0x110000]; made once.
const uint8_t* character_classes();

/// How many characters of valid UTF-8 are not of Unicode 14.
int64_t count_unknown(std::string_view text);

/// GPT-2's alphabet: each byte as a character that prints. [256]
const char32_t* byte_alphabet();
/// The byte that this character of the alphabet stands for, -1 for others.
int byte_of(char32_t character);
/// The bytes that the alphabet's characters stand for; false, and `out` of no use, when there are others.
bool bytes_of(std::string_view text, std::string& out);

}  // namespace orrery::tokenizer
