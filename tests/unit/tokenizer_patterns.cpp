// The scanners by hand of published patterns against libonig, and word merging against its definition.
#include <catch2/catch.hpp>
#include <random>

#include "base/json.h"
#include "tokenizer/bpe/merge.h"
#include "tokenizer/characters.h"
#include "tokenizer/pattern.h"

using namespace orrery;
using namespace orrery::tokenizer;

namespace {

/// Texts in which every alternative of the patterns meets every other, and any character now and then.
std::string random_text(std::mt19937_64& random) {
    static const std::vector<std::string> frequent = {
        " ",      " ", "\n",     "\r",     "\t",     "\v",         "\u00a0", "\u2003", "\u3000",
        "\u0085", "'", "'",      "s",      "S",      "\u017f",     "t",      "T",      "r",
        "e",      "R", "E",      "v",      "m",      "l",          "L",      "d",      "D",
        "1",      "2", "\u00b2", "\u0663", "\u2167", ".",          "-",      "_",      "\u0301",
        "\u200d", "a", "\u00e9", "\u4e2d", "\u01c5", "\U0001f642", "\u180e", "\u2028", "\x01"};
    std::string text;
    const size_t length = random() % 24;
    for (size_t i = 0; i < length; ++i) {
        if (random() % 8) {
            const std::string& one = frequent[random() % frequent.size()];
            const size_t times = random() % 6 ? 1 : 1 + random() % 5;
            for (size_t k = 0; k < times; ++k) text += one;
        } else {
            const auto any = static_cast<char32_t>(random() % (random() % 2 ? 0x3000 : 0x110000));
            append_character(text, any >= 0xd800 && any < 0xe000 ? U' ' : any);
        }
    }
    return text;
}

std::string shown(std::string_view text, const std::vector<Part>& parts) {
    std::string out;
    for (const Part& part : parts)
        out += (part.match ? "[" : "(") + std::string(text.substr(part.begin, part.end - part.begin)) + "]";
    return out;
}

}  // namespace

TEST_CASE("tokenizer: published patterns by hand cut as libonig does") {
    std::mt19937_64 random(7);
    for (const std::string_view pattern : {gpt2_pattern, llama3_pattern, qwen2_pattern}) {
        const Json json = std::string(pattern);
        const Field field(json, "pattern", "a file");
        const Pattern by_hand = Pattern::regex(field), by_onig = Pattern::regex(field, false);
        REQUIRE(by_hand.scanner());
        REQUIRE_FALSE(by_onig.scanner());
        std::vector<Part> hand, onig;
        size_t wrong = 0, parts = 0;
        for (int i = 0; i < 4000; ++i) {
            const std::string text = random_text(random);
            hand.clear();
            onig.clear();
            by_hand.cut(text, hand);
            by_onig.cut(text, onig);
            parts += onig.size();
            if (shown(text, hand) != shown(text, onig) && ++wrong < 3)
                UNSCOPED_INFO(Json(shown(text, hand)).dump() << "\n  " << Json(shown(text, onig)).dump());
        }
        CHECK(parts > 20000);
        CHECK(wrong == 0);
    }
}

TEST_CASE("tokenizer: published patterns by hand know every character as libonig does") {
    for (const std::string_view pattern : {gpt2_pattern, llama3_pattern}) {
        const Json json = std::string(pattern);
        const Field field(json, "pattern", "a file");
        const Pattern by_hand = Pattern::regex(field), by_onig = Pattern::regex(field, false);
        std::string text;
        for (char32_t c = 1; c < 0x110000; c += c < 0x3400 ? 1 : 13)
            if (c < 0xd800 || c >= 0xe000) {
                append_character(text, c);
                text += "a";
            }
        std::vector<Part> hand, onig;
        by_hand.cut(text, hand);
        by_onig.cut(text, onig);
        REQUIRE(onig.size() > 10000);
        CHECK(shown(text, hand) == shown(text, onig));
    }
}

TEST_CASE("tokenizer: words of any length merge by rank, leftmost first") {
    std::mt19937_64 random(11);
    Json vocab = Json::object(), merges = Json::array();
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    for (const std::string& token : tokens) vocab[token] = vocab.size();
    while (tokens.size() < 60) {
        const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
        if (vocab.contains(left + right) || left.size() + right.size() > 9) continue;
        merges.push_back(Json::array({left, right}));
        vocab[left + right] = vocab.size();
        tokens.push_back(left + right);
    }
    const Json json = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
    const BpeModel model(Field(json, "model", "a file"));
    Merger merger;
    for (int i = 0; i < 300; ++i) {
        std::vector<int32_t> ids(random() % 200);
        for (int32_t& id : ids) id = static_cast<int32_t>(random() % 4);
        std::vector<int32_t> right = ids;
        while (true) {  // the definition
            const PairTable::Entry* best = nullptr;
            size_t at = 0;
            for (size_t k = 0; k + 1 < right.size(); ++k) {
                const PairTable::Entry* entry = model.merge_of(right[k], right[k + 1]);
                if (entry && (!best || entry->rank < best->rank)) best = entry, at = k;
            }
            if (!best) break;
            right[at] = best->id;
            right.erase(right.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
        merger.merge(model, ids);
        CHECK(ids == right);
    }
}
