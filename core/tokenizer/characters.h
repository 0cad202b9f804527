#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::tokenizer {

/// Classifies the bytes at `at` as UTF-8 (RFC 3629). Returns the length of a valid character, 0 for the beginning of a
/// character that the text cuts off, and minus the number of invalid bytes otherwise.
int64_t next_character(std::string_view text, size_t at);
/// Returns the offset of the first byte that is not valid UTF-8 (RFC 3629); the text's size when all are valid.
size_t valid_until(std::string_view text);

/// Returns the length in bytes of a valid UTF-8 character from its first byte.
inline size_t length_of(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// Returns the offset at which the character that ends at `end` (not 0) begins, in valid UTF-8.
inline size_t before(std::string_view text, size_t end) {
    do --end;
    while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
    return end;
}

/// Returns the character that begins at `at`, in valid UTF-8.
inline char32_t character_at(const char* at) {
    const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
    const char32_t first = byte(0);
    if (first < 0x80) return first;
    if (first < 0xe0) return (first & 0x1f) << 6 | (byte(1) & 0x3f);
    if (first < 0xf0) return (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    return (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

void append_character(std::string& text, char32_t character);

/// Classes of a character, as in libonig 6.9.8 (Unicode 14).
enum CharacterClass : uint8_t {
    is_letter = 1,   ///< \p{L}
    is_number = 2,   ///< \p{N}
    is_space = 4,    ///< \s, White_Space
    is_word = 8,     ///< \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
    is_unknown = 16  ///< not assigned in Unicode 14
};

/// Returns the classes of every character [0x110000]; computed once.
const uint8_t* character_classes();

/// Returns the number of characters that are not in Unicode 14. The text must be valid UTF-8.
int64_t count_unknown(std::string_view text);

/// Returns GPT-2's alphabet: a printable character for each byte. [256]
const char32_t* byte_alphabet();
/// Returns the byte that a character of GPT-2's alphabet represents; -1 for other characters.
int byte_of(char32_t character);
/// Appends to `out` the bytes that a text in GPT-2's alphabet represents. Returns false, with `out` unspecified, when a
/// character of the text is not in the alphabet.
bool bytes_of(std::string_view text, std::string& out);

}  // namespace orrery::tokenizer
