#include <catch2/catch.hpp>

#include "base/log.h"
#include "base/text.h"

using namespace orrery;

TEST_CASE("bytes, counts and times print with units") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(1023) == "1023 B");
    CHECK(bytes_text(8192) == "8.0 KiB");
    CHECK(bytes_text((int64_t{1} << 20) - 1) == "1.0 MiB");
    CHECK(bytes_text(int64_t{3} << 29) == "1.5 GiB");
    CHECK(count_text(0) == "0");
    CHECK(count_text(-1234567) == "-1,234,567");
    CHECK(count_text(123) == "123");
    CHECK(short_text(950) == "950");
    CHECK(short_text(10.7e6) == "10.7 M");
    CHECK(short_text(999.7e3) == "1.00 M");
    CHECK(seconds_text(1.2e-6) == "1.20 us");
    CHECK(seconds_text(0.035) == "35.0 ms");
    CHECK(seconds_text(200) == "3 min 20 s");
    CHECK(seconds_text(7500) == "2 h 5 min");
}

TEST_CASE("quoting escapes what a terminal would act on") {
    CHECK(quote("a\"b\n\x1b") == R"("a\"b\n\x1b")");
    CHECK(quote(std::string(300, 'x')).size() == 205);
    CHECK(join({}, ",") == "");
    CHECK(join({"a", "b"}, ", ") == "a, b");
    CHECK(split("a..b", '.') == std::vector<std::string>{"a", "", "b"});
    CHECK(trim(" \tx y\n") == "x y");
}

TEST_CASE("a log prefixes each line and is silent without a sink") {
    const auto env = system_env();
    std::vector<std::string> lines;
    const Log log([&](std::string_view line) { lines.emplace_back(line); }, "rank 1", *env);
    log.debug("dropped");
    log.warning("one\ntwo");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].substr(12) == " [rank 1] warning: one");
    CHECK(lines[1].substr(12) == " [rank 1] warning: two");
    Log().info("nothing happens");
}
