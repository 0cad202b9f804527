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

/// A token that is found in a text before anything is cut, as "<|endoftext|>".
struct AddedToken {
    int32_t id = 0;
    std::string content;
    std::string pattern;       ///< what is looked for: the content, normalized where the token is
    bool single_word = false;  ///< not where a word goes on, on either side
    bool lstrip = false;       ///< with the spaces before it
    bool rstrip = false;       ///< and behind it
    bool normalized = false;   ///< looked for in the normalized text
    bool special = false;      ///< may be left out when decoding
};

/// The added tokens of one kind, normalized or not, looked for at once.
class AddedTokens {
public:
    /// Pieces of the text: between tokens (token = nullptr), and tokens with the spaces that they take. In order.
    using Take = std::function<void(std::string_view piece, const AddedToken* token)>;

    void add(const AddedToken* token);
    bool empty() const { return by_text_.empty(); }
    /// The leftmost token, among those the longest; then on behind it. Gives `take` no empty piece. Throws Error where
    /// a token with lstrip lies in the spaces that another's rstrip has taken.
    void cut(std::string_view text, const Take& take) const;

private:
    const AddedToken* longest(std::string_view text) const;

    std::unordered_map<std::string_view, const AddedToken*> by_text_;
    std::array<std::vector<size_t>, 256> lengths_;  ///< of those with this first byte, longest first
};

/// The tokens of the key "added_tokens". `model_id`: what the model's vocabulary calls them; `next`: the id of the
/// first one that it lacks. Throws Error where the file's ids are not those that the reference would give.
std::vector<AddedToken> read_added_tokens(const Field& field, const Normalizer& normalizer,
                                          const std::function<std::optional<int32_t>(const std::string&)>& model_id,
                                          int64_t next);

}  // namespace orrery::tokenizer
