#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace orrery::tokenizer {

/// What transformers' AutoTokenizer reads of a published folder, tokenizer.json first, and generation_config.json.
const std::vector<std::string>& published_files();

/// tokenizer.json of the folder, or the file that was named.
std::string tokenizer_file(const std::string& path);

/// A token that a folder's file names, "" where none does.
struct NamedToken {
    std::string token, file;
};
/// `key`, as eos_token, of tokenizer_config.json or special_tokens_map.json beside the tokenizer. Throws Error for
/// broken files.
NamedToken named_token(const std::string& path, const std::string& key);

/// A line for each of add_bos_token and add_eos_token of the folder's tokenizer_config.json that the template
/// does not do: texts are encoded by the template, as the package `tokenizers` does.
std::vector<std::string> template_notes(const std::string& path, const Tokenizer& tokenizer);

/// Tokens that end texts where no file says which does.
const std::vector<std::string>& usual_ends();

/// The ids that end a text, and what says so.
struct EndOfText {
    std::vector<int32_t> ids;  ///< none: the tokenizer has no end of text
    std::string from;
};
/// eos_token_id of generation_config.json, else its eos_token, else a token of one of the usual names. Throws Error
/// where a file names what the tokenizer has not.
EndOfText end_of_text(const std::string& path, const Tokenizer& tokenizer);

}  // namespace orrery::tokenizer
