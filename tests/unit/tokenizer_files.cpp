// Small tokenizers of tests/tokenizer against the ids and texts that the reference made.
#include <catch2/catch.hpp>
#include <fstream>

#include "base/json.h"
#include "folders.h"
#include "tokenizer/characters.h"
#include "tokenizer/encoder.h"

using namespace orrery;
using namespace orrery::tokenizer;

namespace {

struct Expected {
    std::string name;
    Json json;
};

std::vector<Expected> expected() {
    std::ifstream in(in_source("tests/tokenizer/expected.jsonl"));
    std::vector<Expected> all;
    for (std::string line; std::getline(in, line);) {
        Json json = parse_json(line, {"", "expected.jsonl"});
        if (!json.contains("tokenizer")) continue;
        all.push_back({json["tokenizer"].get<std::string>(), json});
    }
    REQUIRE(all.size() == 5);
    return all;
}

std::shared_ptr<const Tokenizer> load(const std::string& name) {
    return Tokenizer::load(in_source("tests/tokenizer/" + name + ".json"));
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("tokenizer: texts have the ids of the reference") {
    for (const Expected& each : expected()) {
        const auto tokenizer = load(each.name);
        Encoder encoder(*tokenizer);
        size_t wrong = 0, seen = 0;
        for (int round = 0; round < 2; ++round) {  // the second time words are remembered
            for (const Json& row : each.json["encoded"]) {
                const std::string text = row["text"].get<std::string>();
                Ids ids, with{-1};
                encoder.encode(text, Around::none, ids);
                encoder.encode(text, Around::both, with);
                const Ids right = row["ids"].get<Ids>();
                Ids right_with{-1};
                const Ids before = row["before"].get<Ids>();
                right_with.insert(right_with.end(), before.begin(), before.end());
                right_with.insert(right_with.end(), right.begin(), right.end());
                ++seen;
                if (ids == right && with == right_with) continue;
                if (++wrong < 4)
                    UNSCOPED_INFO(each.name << ": " << Json(text).dump() << "\n  " << Json(ids).dump() << "\n  "
                                            << Json(right).dump());
            }
        }
        CHECK(seen > 20);
        CHECK(wrong == 0);
    }
}

TEST_CASE("tokenizer: many texts on threads have the ids of one") {
    const auto tokenizer = load("qwen2");
    std::vector<std::string> texts;
    for (const Expected& each : expected())
        for (const Json& row : each.json["encoded"]) texts.push_back(row["text"].get<std::string>());
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    Encoders one(tokenizer, 1), three(tokenizer, 3);
    const auto alone = one.encode(views, Around::both);
    CHECK(three.encode(views, Around::both) == alone);
    CHECK(three.encode(views, Around::both) == alone);  // with words that are known
    CHECK(one.counts().unknown * 2 == three.counts().unknown);
    CHECK(three.encode({}, Around::both).empty());
    std::vector<std::string_view> bad(views.begin(), views.begin() + 8);
    bad[3] = "ab\xff";
    bad[6] = "\xc3(";
    CHECK_THROWS_WITH(three.encode(bad, Around::none), "text 3: byte 0xff at offset 2 is not UTF-8");
}

TEST_CASE("tokenizer: ids have the text of the reference, at once and one by one") {
    for (const Expected& each : expected()) {
        const auto tokenizer = load(each.name);
        size_t wrong = 0, parts = 0;
        for (const Json& row : each.json["decoded"]) {
            const Ids ids = row["ids"].get<Ids>();
            for (const bool skip : {false, true}) {
                const std::string right = row[skip ? "without" : "text"].get<std::string>();
                std::string streamed;
                TextStream stream(tokenizer, skip);
                for (const int32_t id : ids) {
                    const std::string part = stream.put(id);
                    CHECK(valid_until(part) == part.size());
                    parts += !part.empty();
                    streamed += part;
                }
                streamed += stream.finish();
                wrong += tokenizer->decode(ids, skip) != right || streamed != right;
                const bool whole = right.find("\xef\xbf\xbd") == std::string::npos;
                wrong += whole && tokenizer->decode(ids, skip, Unreadable::kept) != right;
            }
        }
        CHECK(parts > 20);
        CHECK(wrong == 0);
    }
}

TEST_CASE("tokenizer: a text that is cut anywhere keeps its bytes where they are asked for") {
    // The character behind the fox is one that stands for a byte while it is decoded; there is no space, as Llama 2
    // takes one off the beginning of each text.
    const std::string text = "na\xc3\xafve\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\xa6\x8a\xf4\x8f\xba\x85\xcf\x89";
    int tried = 0;
    for (const Expected& each : expected()) {
        INFO(each.name);
        const auto tokenizer = load(each.name);
        if (tokenizer->decoders().empty()) continue;
        Ids ids;
        Encoder(*tokenizer).encode(text, Around::none, ids);
        if (tokenizer->decode(ids) != text) continue;  // it has no tokens for such characters
        CHECK(ids.size() > 8);
        int cut = 0;
        for (size_t i = 0; i <= ids.size(); ++i) {
            const std::span<const int32_t> all(ids);
            const auto of = [&](std::span<const int32_t> part) {
                return tokenizer->decode(part, false, Unreadable::kept);
            };
            CHECK(of(all.first(i)) + of(all.subspan(i)) == text);
            cut += tokenizer->decode(all.first(i)) + tokenizer->decode(all.subspan(i)) != text;
        }
        CHECK(cut > 5);
        ++tried;
    }
    CHECK(tried >= 4);
}

TEST_CASE("tokenizer: a character is kept back until it is whole") {
    const auto tokenizer = load("gpt2");
    Encoder encoder(*tokenizer);
    Ids ids;
    encoder.encode("a\xf0\x9f\x99\x82 \xe2\x82\xac", Around::none, ids);
    TextStream stream(tokenizer);
    std::vector<std::string> parts;
    for (const int32_t id : ids) parts.push_back(stream.put(id));
    REQUIRE(parts.size() >= 8);  // no token of the small vocabulary has a part of these
    CHECK(parts[0] == "a");
    CHECK(parts[1].empty());
    CHECK(parts[4] == "\xf0\x9f\x99\x82");
    stream.put(ids[1]);
    CHECK(stream.finish() == "\xef\xbf\xbd");
}

TEST_CASE("tokenizer: invalid UTF-8 is refused with its offset, and nothing is appended") {
    const auto tokenizer = load("llama3");
    Encoder encoder(*tokenizer);
    const auto message = [&](const std::string& text) {
        Ids ids{7};
        std::string what;
        try {
            encoder.encode(text, Around::both, ids);
        } catch (const Error& error) {
            what = error.what();
        }
        CHECK(ids == Ids{7});
        return what;
    };
    CHECK(message("0123456789abc\x80") == "byte 0x80 at offset 13 is not UTF-8");
    CHECK(message("\xed\xa0\x80") == "byte 0xed at offset 0 is not UTF-8");        // a surrogate
    CHECK(message("a\xc0\xaf") == "byte 0xc0 at offset 1 is not UTF-8");           // not the shortest form
    CHECK(message("ab\xf4\x90\x80\x80") == "byte 0xf4 at offset 2 is not UTF-8");  // above U+10FFFF
    CHECK(message("abc\xe2\x82") == "byte 0xe2 at offset 3 is not UTF-8");         // cut
}

TEST_CASE("tokenizer: characters that libonig does not know are counted") {
    const auto tokenizer = load("gpt2");
    Encoder encoder(*tokenizer);
    Ids ids;
    encoder.encode("a \U0001fae0 \U00031350 \ufffe \U0001f642", Around::none, ids);  // Unicode 14, 15, none, 6
    CHECK(encoder.counts().unknown == 2);
    CHECK(encoder.counts().lost == 0);
}

TEST_CASE("tokenizer: what is special, and which ids there are") {
    const auto tokenizer = load("llama3");
    const auto begin = tokenizer->id_of("<|begin_of_text|>");
    REQUIRE(begin);
    CHECK(tokenizer->is_special(*begin));
    CHECK_FALSE(tokenizer->is_special(0));
    CHECK(tokenizer->token_of(*begin) == "<|begin_of_text|>");
    CHECK(tokenizer->vocabulary() == 480 + 5 + 10);
    CHECK_FALSE(tokenizer->id_of("no such token"));
    const Ids beyond{1, static_cast<int32_t>(tokenizer->vocabulary())};
    CHECK_THROWS_WITH(tokenizer->decode(beyond), Catch::Contains("decode: unknown token id 495"));
}
