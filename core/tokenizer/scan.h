#pragma once
#include <cstddef>
#include <string_view>

namespace orrery::tokenizer {

/// A scanner returns the end of the match that begins at byte `at` (below the size) of a text of valid UTF-8.
using Scanner = size_t (*)(std::string_view text, size_t at);

/// Returns the hand-written scanner of a published pattern (GPT-2's, Llama 3's or Qwen2's); nullptr for any other
/// pattern. These patterns match at every character, so there are no gaps between matches.
/// tests/unit/tokenizer_patterns.cpp compares the scanners with libonig.
Scanner known_scanner(std::string_view pattern);

/// GPT-2's pattern, which is built into the pre-tokenizer ByteLevel.
extern const std::string_view gpt2_pattern;
extern const std::string_view llama3_pattern;
extern const std::string_view qwen2_pattern;

}  // namespace orrery::tokenizer
