#include <catch2/catch.hpp>
#include <random>

#include "base/json.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("json keeps the order of keys and refuses duplicates, garbage and deep nesting") {
    const Origin where{"", "a.json", 0, 0};
    CHECK(parse_json(R"({"b":1,"a":[1,2,{"b":2}]})", where).dump() == R"({"b":1,"a":[1,2,{"b":2}]})");
    CHECK_THROWS_WITH(parse_json(R"({"a":1,"b":{"a":1},"a":2})", where),
                      Contains("a.json: json has the key \"a\" twice"));
    CHECK_NOTHROW(parse_json(R"([{"a":1},{"a":1}])", where));
    CHECK_THROWS_WITH(parse_json("{\"a\":", where), Contains("a.json: not valid json: parse error at line 1"));
    CHECK_THROWS_WITH(parse_json(std::string(100, '['), where), Contains("deeper than 64"));
    CHECK_THROWS_AS(parse_json(R"({"a":1} x)", where), Error);
}

TEST_CASE("json is UTF-8, and what is not is named by its offset") {
    const Origin where{"", "a.json", 0, 0};
    CHECK_THROWS_WITH(parse_json("{\"a\":\"\xe9\"}", where),
                      Contains("a.json: not valid json: byte 0xe9 at offset 6 is not UTF-8"));
    CHECK(message_text(Json{{"path", "\xe9t\xc3\xa9"}}) == "{\"path\":\"\xef\xbf\xbdt\xc3\xa9\"}");
    // Random bytes, many of them near the ends of the ranges of RFC 3629: as nlohmann's own reader has it.
    constexpr unsigned char likely[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2,
                                        0xdf, 0xe0, 0xe1, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf4, 0xf5};
    std::mt19937 random(1);
    int good = 0;
    for (int trial = 0; trial < 100'000; ++trial) {
        std::string text;
        for (auto left = random() % 6 + 1; left-- > 0;)
            text += static_cast<char>(random() % 4 > 0 ? likely[random() % sizeof likely] : random() % 128 + 128);
        const bool valid = Json::accept('"' + text + '"');
        good += valid;
        if (not_utf8(text).empty() != valid) FAIL_CHECK("trial " << trial);
    }
    CHECK(good > 1000);
}

TEST_CASE("an integer of json is neither rounded nor wrapped") {
    CHECK(whole_number(Json::parse("9223372036854775807"), "n") == INT64_MAX);
    for (const char* text : {"-1", "2.5", "1e3", "9223372036854775808", "true", "\"1\"", "null", "[1]"})
        CHECK_THROWS_WITH(whole_number(Json::parse(text), "n"), Contains("n is ") && Contains("expected an integer"));
}
