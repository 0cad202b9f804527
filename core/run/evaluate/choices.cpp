#include "run/evaluate/choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace orrery {

using tokenizer::Around;

namespace {

/// Whether Python's str.rstrip removes the character, which is what lm-eval uses.
bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// The code point that starts at byte `at` of valid UTF-8.
char32_t character_at(std::string_view text, size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    char32_t c = first < 0x80 ? first : first < 0xe0 ? first & 0x1f : first < 0xf0 ? first & 0x0f : first & 0x07;
    for (size_t i = at + 1; i < text.size() && continues(text[i]); ++i)
        c = c << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
    return c;
}

size_t without_end(std::string_view text) {
    size_t end = text.size();
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && continues(text[at])) --at;
        if (!is_space(character_at(text, at))) break;
        end = at;
    }
    return end;
}

int64_t characters(std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); });
}

/// Which tokens of the tokenizer's template to add to a context: those that begin a text, unless the context begins
/// with them already; never those that end a text.
Around beginning(const TokenText& tokens, std::string_view text) {
    return tokens.begins(text) ? Around::none : Around::begin;
}

const Json& key_of(const Json& json, const char* key, const Origin& where) {
    const auto found = json.find(key);
    if (found == json.end())
        throw Error(where, fmt::format("has no key {}: a line is {{\"context\": \"...\", \"endings\": [\"...\"], "
                                       "\"label\": 0}}",
                                       quote(key)));
    return *found;
}

}  // namespace

MultipleChoice parse_choice(std::string_view line, const Origin& where) {
    const Json json = parse_json(line, where);
    if (!json.is_object()) throw Error(where, "is not a JSON object");
    MultipleChoice choice;
    choice.where = where;
    const Json &context = key_of(json, "context", where), &endings = key_of(json, "endings", where);
    if (!context.is_string()) throw Error(where, "\"context\" is not a string");
    choice.context = context.get<std::string>();
    if (!endings.is_array() || endings.empty()) throw Error(where, "\"endings\" is not a list of strings");
    for (const Json& ending : endings) {
        if (!ending.is_string() || ending.get_ref<const std::string&>().empty())
            throw Error(where, "\"endings\" has an element that is empty or not a string");
        choice.endings.push_back(ending.get<std::string>());
    }
    choice.label = whole_number(key_of(json, "label", where), where.text() + ": \"label\"");
    if (choice.label >= static_cast<int64_t>(choice.endings.size()))
        throw Error(where, fmt::format("\"label\" is {}, but there are {} endings, counted from 0", choice.label,
                                       choice.endings.size()));
    return choice;
}

EncodedEnding encode_ending(const TokenText& tokens, const MultipleChoice& choice, size_t ending,
                            std::string_view delimiter, int64_t positions) {
    const std::string whole = choice.context + std::string(delimiter) + choice.endings[ending];
    const std::string_view context = std::string_view(whole).substr(0, without_end(choice.context));
    EncodedEnding row;
    size_t before = 0;
    try {
        if (choice.context.empty()) {
            const auto start = tokens.start();
            if (!start) throw Error("its context is empty, and the tokenizer has no BOS or EOS token");
            row.ids = tokens.encode(whole, Around::none);
            if (row.ids.empty() || row.ids.front() != *start) row.ids.insert(row.ids.begin(), *start);
            before = 1;
        } else {
            before = tokens.encode(context, beginning(tokens, context)).size();
            row.ids = tokens.encode(whole, beginning(tokens, whole));
            if (before == 0) throw Error("its context is only white space");
        }
    } catch (const Error& error) {
        throw Error(choice.where, error.what(), error.fault());
    }
    row.scored = static_cast<int64_t>(row.ids.size()) - static_cast<int64_t>(before);
    if (row.scored < 1 || row.scored > positions)
        throw Error(choice.where, fmt::format("ending {} has {} tokens of its own after the context, expected 1 to {}",
                                              ending, std::max<int64_t>(0, row.scored), positions));
    return row;
}

void fill_row(const EncodedEnding& ending, std::span<int32_t> tokens, std::span<int32_t> targets) {
    const size_t all = ending.ids.size(), kept = std::min(all, tokens.size() + 1), first = all - kept;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const bool there = i + 1 < kept;
        tokens[i] = there ? ending.ids[first + i] : 0;
        const bool scored = there && first + i + 1 >= all - static_cast<size_t>(ending.scored);
        targets[i] = scored ? ending.ids[first + i + 1] : -1;
    }
}

Chosen chosen_of(const MultipleChoice& choice, std::span<const double> log_likelihoods) {
    std::vector<double> normed;
    for (size_t i = 0; i < log_likelihoods.size(); ++i)
        normed.push_back(log_likelihoods[i] / static_cast<double>(characters(choice.endings[i])));
    const auto first_best = [](std::span<const double> all) {
        return static_cast<int64_t>(std::max_element(all.begin(), all.end()) - all.begin());
    };
    return {first_best(log_likelihoods), first_best(normed)};
}

}  // namespace orrery
