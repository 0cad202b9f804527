#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/text.h"
#include "orrery/error.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

bool is(std::string_view text, size_t at, CharacterClass wanted) {
    return (character_classes()[character_at(text.data() + at)] & wanted) != 0;
}

bool alone(std::string_view text, Range found) {
    const bool left = found.begin == 0 || !is(text, before(text, found.begin), is_word);
    return left && (found.end == text.size() || !is(text, found.end, is_word));
}

size_t spaces_before(std::string_view text, size_t at) {
    while (at > 0 && is(text, before(text, at), is_space)) at = before(text, at);
    return at;
}

size_t spaces_behind(std::string_view text, size_t at) {
    while (at < text.size() && is(text, at, is_space)) at += length_of(text[at]);
    return at;
}

AddedToken read_token(const Field& field, const Normalizer& normalizer) {
    field.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    const int64_t id = field.at("id").whole();
    if (id > INT32_MAX) field.at("id").refuse(fmt::format("is {}, at most {} fits", id, INT32_MAX));
    token.id = static_cast<int32_t>(id);
    token.content = field.at("content").text();
    token.single_word = field.at("single_word").truth();
    token.lstrip = field.at("lstrip").truth();
    token.rstrip = field.at("rstrip").truth();
    token.normalized = field.at("normalized").truth();
    token.special = field.at("special").truth();
    token.pattern = token.normalized ? normalizer.apply(token.content) : token.content;
    if (token.pattern.empty()) field.at("content").refuse("is empty, and would be found everywhere");
    return token;
}

}  // namespace

void AddedTokens::add(const AddedToken* token) {
    by_text_.emplace(token->pattern, token);
    std::vector<size_t>& lengths = lengths_[static_cast<unsigned char>(token->pattern[0])];
    const size_t length = token->pattern.size();
    const auto at = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
    if (at == lengths.end() || *at != length) lengths.insert(at, length);
}

const AddedToken* AddedTokens::longest(std::string_view text) const {
    for (const size_t length : lengths_[static_cast<unsigned char>(text[0])]) {
        if (length > text.size()) continue;
        const auto found = by_text_.find(text.substr(0, length));
        if (found != by_text_.end()) return found->second;
    }
    return nullptr;
}

void AddedTokens::cut(std::string_view text, const Take& take) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
        if (lengths_[static_cast<unsigned char>(text[at])].empty()) {
            ++at;
            continue;
        }
        const AddedToken* token = longest(text.substr(at));
        if (!token) {
            ++at;
            continue;
        }
        Range found{at, at + token->pattern.size()};
        at = found.end;
        if (token->single_word && !alone(text, found)) continue;
        // Starts after the token before, which may have taken the spaces.
        if (token->lstrip) found.begin = std::max(spaces_before(text, found.begin), done);
        if (token->rstrip) found.end = spaces_behind(text, found.end);
        if (found.begin > found.end)
            throw Error(
                fmt::format("unsupported: the added token {} overlaps the spaces that the preceding added token "
                            "strips (rstrip)",
                            quote(token->content)));
        if (done < found.begin) take(text.substr(done, found.begin - done), nullptr);
        if (found.begin < found.end) take(text.substr(found.begin, found.end - found.begin), token);
        done = found.end;
    }
    if (done < text.size()) take(text.substr(done), nullptr);
}

std::vector<AddedToken> read_added_tokens(const Field& field, const Normalizer& normalizer,
                                          const std::function<std::optional<int32_t>(const std::string&)>& model_id,
                                          int64_t next) {
    std::vector<AddedToken> tokens;
    std::unordered_set<std::string> contents, patterns[2];
    const std::vector<Field> items = field.items();
    for (const Field& item : items) {
        AddedToken token = read_token(item, normalizer);
        const std::optional<int32_t> known = model_id(token.content);
        const int64_t expected = known ? *known : next++;
        if (token.id != expected)
            item.at("id").refuse(fmt::format(
                "is {}, but the added token {} must have the id {}, as in {}", token.id, quote(token.content), expected,
                known ? "model.vocab" : "Hugging Face tokenizers, where ids continue after model.vocab"));
        if (!contents.insert(token.content).second)
            item.at("content").refuse("is a duplicate: another added token has the same content");
        if (!patterns[token.normalized].insert(token.pattern).second)
            item.at("content").refuse("is a duplicate: another added token is equal after normalization");
        tokens.push_back(std::move(token));
    }
    return tokens;
}

}  // namespace orrery::tokenizer
