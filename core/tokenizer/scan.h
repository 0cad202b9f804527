#pragma once
#include <cstddef>
#include <string_view>

namespace orrery::tokenizer {

/// End of the match that begins at byte `at`, which is below the text's size; the text is valid UTF-8.
using Scanner = size_t (*)(std::string_view text, size_t at);

/// A scanner by hand of a published pattern, GPT-2's, Llama 3's or Qwen2's, nullptr for any other. These match at every
/// character, so their matches follow each other without gaps; they are held to libonig's in
/// tests/unit/tokenizer_patterns.cpp.
Scanner known_scanner(std::string_view pattern);

/// GPT-2's pattern, which the pre-tokenizer ByteLevel has built in.
extern const std::string_view gpt2_pattern;
extern const std::string_view llama3_pattern;
extern const std::string_view qwen2_pattern;

}  // namespace orrery::tokenizer
