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

/// What the token ids of a model stand for: text of its tokenizer; without one bytes, where there are 256 of them, else
/// numbers.
class TokenText {
public:
    /// `ids`: that the model has rows and logits for. Throws Error as require_rows does.
    TokenText(const std::optional<ChosenTokenizer>& chosen, int64_t ids);

    bool is_numbers() const { return !tokenizer_ && ids_ != bytes; }
    /// That a text continues from: with the template's beginning, without its end. Never empty: an empty prompt is what
    /// begins a text. Throws Error where it is no text of such tokens.
    std::vector<int32_t> prompt(const std::string& text) const;
    /// Of a text or a part of one; `around`: which of the template's tokens it gets, where there is a tokenizer. Throws
    /// Error, naming the offset, for bytes that are not UTF-8, and where ids are numbers.
    std::vector<int32_t> encode(std::string_view text, tokenizer::Around around) const;
    /// Bytes of text that these ids stand for; special tokens are none.
    int64_t bytes_of(const std::vector<int32_t>& ids) const;
    /// Whether the id stands for anything.
    bool stands(int64_t id) const { return id < ids_ && (!tokenizer_ || tokenizer_->has(id)); }
    bool ends(int32_t id) const;
    /// "" where nothing ends a text; else "<|endoftext|>, of folder/tokenizer_config.json".
    std::string end() const;
    /// The token that a text without context is scored behind: the folder's bos_token, else the template's first, else
    /// an end of text.
    std::optional<int32_t> start() const { return start_; }
    /// Whether the text itself begins with that token's name.
    bool begins(std::string_view text) const;

    /// Text of ids that come one by one, whole characters at a time.
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
    std::unique_ptr<tokenizer::Encoder> encoder_;  ///< of one thread; remembers words
    tokenizer::EndOfText end_;
    std::optional<int32_t> start_;
    int64_t ids_;
};

}  // namespace orrery
