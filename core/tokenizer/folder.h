#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace orrery::tokenizer {

/// Names of the files that transformers' AutoTokenizer reads from a published folder, tokenizer.json first, and
/// generation_config.json.
const std::vector<std::string>& published_files();

/// Returns the path of tokenizer.json when `path` is a folder, otherwise `path`.
std::string tokenizer_file(const std::string& path);

/// A special token and the name of the file that specifies it; both "" when no file does.
struct NamedToken {
    std::string token, file;
};
/// Returns the value of `key`, e.g. eos_token, in tokenizer_config.json or special_tokens_map.json of the tokenizer's
/// folder. Throws Error for malformed files.
NamedToken named_token(const std::string& path, const std::string& key);

/// Returns a message for each of add_bos_token and add_eos_token of tokenizer_config.json that the template
/// contradicts. Texts are encoded by the template, as the package `tokenizers` does.
std::vector<std::string> template_notes(const std::string& path, const Tokenizer& tokenizer);

/// The names of end-of-text tokens to look for when no file names one.
const std::vector<std::string>& usual_ends();

struct EndOfText {
    std::vector<int32_t> ids;  ///< empty: the tokenizer has no end of text
    std::string from;
};
/// Returns eos_token_id of generation_config.json, otherwise the folder's eos_token, otherwise a token with one of the
/// usual names. Throws Error when a file names a token that the tokenizer lacks.
EndOfText end_of_text(const std::string& path, const Tokenizer& tokenizer);

}  // namespace orrery::tokenizer
