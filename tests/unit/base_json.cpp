#include <catch2/catch.hpp>

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
