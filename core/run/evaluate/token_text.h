#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/evaluate/kept_tokenizer.h"
#include "tokenizer/encoder.h"
#include "tokenizer/folder.h"

namespace orrery {

/// Converts between text and a model's token ids. With a tokenizer, an id is one of the tokenizer's tokens; without
/// one, a byte if the model has 256 ids, and otherwise a decimal number.
class TokenText {
public:
    /// `ids`: number of ids for which the model has logits. Throws Error if the tokenizer has more ids.
    TokenText(const std::optional<ChosenTokenizer>& chosen, int64_t ids);

    bool is_numbers() const { return !tokenizer_ && ids_ != bytes; }
    /// Encodes a prompt, with the tokens of the tokenizer's template that begin a text but not those that end it. An
    /// empty prompt becomes a token that begins a text. Throws Error if the prompt cannot be encoded.
    std::vector<int32_t> prompt(const std::string& text) const;
    /// Encodes a text. `around`: which tokens of the tokenizer's template are added. Throws Error naming the offset for
    /// bytes that are not UTF-8, and Error if ids are numbers.
    std::vector<int32_t> encode(std::string_view text, tokenizer::Around around) const;
    /// The number of bytes of the text that ids decode to; special tokens have none. 0 if ids are numbers.
    int64_t bytes_of(const std::vector<int32_t>& ids) const;
    /// Whether both the model and the tokenizer have this id.
    bool stands(int64_t id) const { return id < ids_ && (!tokenizer_ || tokenizer_->has(id)); }
    bool ends(int32_t id) const;
    /// The end-of-text tokens, and the file that names them, for messages; "": there are none.
    std::string end() const;
    /// The token that precedes a text without context when it is scored, as in lm-eval: bos_token of the tokenizer's
    /// folder, else its eos_token; if the folder names neither, the template's first token, else an end-of-text token.
    std::optional<int32_t> start() const { return start_; }
    /// Whether the text begins with the name of the start() token.
    bool begins(std::string_view text) const;

    /// Decodes ids one by one. put() returns only whole characters; finish() returns the remaining bytes.
    class Printer {
    public:
        explicit Printer(const TokenText& text);
        std::string put(int32_t id);
        std::string finish();

    private:
        const TokenText& text_;
        std::unique_ptr<tokenizer::TextStream> stream_;
        bool any_ = false;
    };

private:
    static constexpr int64_t bytes = 256;

    std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
    std::unique_ptr<tokenizer::Encoder> encoder_;  ///< not thread-safe: it caches words
    tokenizer::EndOfText end_;
    std::optional<int32_t> start_;
    int64_t ids_;
};

}  // namespace orrery
