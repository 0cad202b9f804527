#include "run/evaluate/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace orrery {

using tokenizer::Around;

namespace {

std::vector<int32_t> numbers_of(const std::string& text, int64_t ids) {
    std::vector<int32_t> tokens;
    std::istringstream in(text.empty() ? "0" : text);
    for (std::string word; in >> word;) {
        char* end = nullptr;
        const long id = std::strtol(word.c_str(), &end, 10);
        if (*end != '\0' || id < 0 || id >= ids)
            throw Error(fmt::format(
                "prompt: \"{}\" is not a token id below {}; a model with a vocabulary other than 256 needs ids "
                "separated by spaces, or text with data.tokenizer",
                word, ids));
        tokens.push_back(static_cast<int32_t>(id));
    }
    if (tokens.empty())
        throw Error("prompt: no token ids found\n  give ids separated by spaces, or leave the prompt out");
    return tokens;
}

}  // namespace

TokenText::TokenText(const std::optional<ChosenTokenizer>& chosen, int64_t ids) : ids_(ids) {
    if (!chosen) return;
    require_rows(*chosen, ids);
    tokenizer_ = chosen->tokenizer;
    encoder_ = std::make_unique<tokenizer::Encoder>(*tokenizer_);
    end_ = tokenizer::end_of_text(chosen->path, *tokenizer_);
    for (const char* key : {"bos_token", "eos_token"})
        if (const std::string token = tokenizer::named_token(chosen->path, key).token; !start_ && !token.empty())
            start_ = tokenizer_->id_of(token);
    if (!start_ && !tokenizer_->before().empty()) start_ = tokenizer_->before().front();
    if (!start_ && !end_.ids.empty()) start_ = end_.ids.front();
}

std::vector<int32_t> TokenText::prompt(const std::string& text) const {
    if (is_numbers()) return numbers_of(text, ids_);
    if (!tokenizer_) return encode(text.empty() ? "\n" : text, Around::begin);
    std::vector<int32_t> ids = encode(text, Around::begin);
    if (!ids.empty()) return ids;
    if (const auto first = start()) return {*first};
    throw Error("prompt: it is empty, and the tokenizer has no BOS or EOS token\n  give a prompt");
}

std::vector<int32_t> TokenText::encode(std::string_view text, Around around) const {
    std::vector<int32_t> ids;
    if (tokenizer_) {
        encoder_->encode(text, around, ids);
        return ids;
    }
    if (is_numbers())
        throw Error(
            fmt::format("cannot convert text to token ids: the model has {} ids and no tokenizer\n  name its "
                        "tokenizer with data.tokenizer, or give a token file",
                        ids_));
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

int64_t TokenText::bytes_of(const std::vector<int32_t>& ids) const {
    if (!tokenizer_) return is_numbers() ? 0 : static_cast<int64_t>(ids.size());
    tokenizer::TextStream stream(tokenizer_, true);
    int64_t size = 0;
    for (const int32_t id : ids) size += static_cast<int64_t>(stream.put(id).size());
    return size + static_cast<int64_t>(stream.finish().size());
}

bool TokenText::ends(int32_t id) const { return std::find(end_.ids.begin(), end_.ids.end(), id) != end_.ids.end(); }

std::string TokenText::end() const {
    if (end_.ids.empty()) return "";
    std::string names;
    for (const int32_t id : end_.ids) names += (names.empty() ? "" : ", ") + tokenizer_->token_of(id);
    return fmt::format("{} ({})", names, end_.from);
}

bool TokenText::begins(std::string_view text) const {
    return start_ && text.starts_with(tokenizer_->token_of(*start_));
}

TokenText::Printer::Printer(const TokenText& text) : text_(text) {
    if (text.tokenizer_) stream_ = std::make_unique<tokenizer::TextStream>(text.tokenizer_, true);
}

std::string TokenText::Printer::put(int32_t id) {
    if (stream_) return stream_->put(id);
    if (!text_.is_numbers()) return {static_cast<char>(id)};
    return (std::exchange(any_, true) ? " " : "") + std::to_string(id);
}

std::string TokenText::Printer::finish() { return stream_ ? stream_->finish() : ""; }

}  // namespace orrery
