#include <catch2/catch.hpp>

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
    CHECK(seconds_text(14.123e-6) == "14.12 us");
    CHECK(seconds_text(134.234) == "134.2 s");  // a step of two minutes and more has its digits
    CHECK(seconds_text(999.94) == "999.9 s");
    CHECK(seconds_text(1234) == "20.57 min");
    CHECK(seconds_text(45000) == "12.5 h");
    CHECK(seconds_text(999.9 * 3600) == "999.9 h");
    CHECK(seconds_text(48000.0 * 3600) == "48,000 h");
    CHECK(short_text(950) == "950");
    CHECK(short_text(10.7e6) == "10.7 M");
    CHECK(short_text(999.7e3) == "1.00 M");
}

TEST_CASE("quoting escapes what a terminal would act on") {
    CHECK(quote("a\"b\n\x1b") == R"("a\"b\n\x1b")");
    CHECK(quote(std::string(300, 'x')).size() == 205);
    CHECK(join({}, ",") == "");
    CHECK(join({"a", "b"}, ", ") == "a, b");
    CHECK(split("a..b", '.') == std::vector<std::string>{"a", "", "b"});
    CHECK(trim(" \tx y\n") == "x y");
}
