#include <catch2/catch.hpp>

#include "orrery/error.h"

TEST_CASE("an origin prints who, file, line and column") {
    CHECK(orrery::Origin{}.text() == "");
    CHECK(orrery::Origin{"", "laptop.toml", 4, 13}.text() == "laptop.toml:4:13");
    CHECK(orrery::Origin{"tensor", "mlp.lua", 9, 0}.text() == "tensor, mlp.lua:9");
}
