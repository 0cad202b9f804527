#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/normalize.h"

namespace orrery::tokenizer {

/// A token that is matched before the text is split, such as "<|endoftext|>".
struct AddedToken {
    int32_t id = 0;
    std::string content;
    std::string pattern;       ///< text to match: the content, or its normalized form if `normalized` is set
    bool single_word = false;  ///< the token does not match if a word character is adjacent
    bool lstrip = false;       ///< the token includes spaces before it
    bool rstrip = false;       ///< the token includes spaces after it
    bool normalized = false;   ///< the token is matched in the normalized text
    bool special = false;      ///< decoding may leave the token out
};

/// A set of added tokens that are matched together: those matched in the raw text, or those in the normalized text.
class AddedTokens {
public:
    /// Called for each piece in order: text between tokens (token = nullptr), or a token with its included spaces.
    using Take = std::function<void(std::string_view piece, const AddedToken* token)>;

    void add(const AddedToken* token);
    bool empty() const { return by_text_.empty(); }
    /// Cuts a text at the leftmost token, the longest of those that match there, and continues after it. `take` gets no
    /// empty piece. Throws Error when a token with lstrip is inside spaces that another token with rstrip has taken.
    void cut(std::string_view text, const Take& take) const;

private:
    const AddedToken* longest(std::string_view text) const;

    std::unordered_map<std::string_view, const AddedToken*> by_text_;
    std::array<std::vector<size_t>, 256> lengths_;  ///< lengths of the patterns by first byte, longest first
};

/// Reads the key "added_tokens". `model_id` returns the id of a token in the model's vocabulary; `next` is the first id
/// after the vocabulary. Throws Error when the file's ids differ from those that Python's `tokenizers` assigns.
std::vector<AddedToken> read_added_tokens(const Field& field, const Normalizer& normalizer,
                                          const std::function<std::optional<int32_t>(const std::string&)>& model_id,
                                          int64_t next);

}  // namespace orrery::tokenizer
