// The data strategy, loaded as the plugin that it is: marks, options, refusals.
#include <catch2/catch.hpp>

#include "folders.h"
#include "ir/build.h"
#include "orrery/strategy.h"
#include "plugin/loader.h"

using namespace orrery;

namespace {

std::unique_ptr<Strategy> make_data(Config options) {
    static Registry registry;
    Loader({in_build("plugins")}).load("strategy", "data", registry, {});
    return registry.strategy("data", {})(options, Origin{"", "gpt.lua", 12, 0});
}

Program two_inputs() {
    Program program;
    Builder build(program);
    build.input("tokens", {DType::i32, {8, 16}}, {"batch", "seq"}, {});
    build.input("mask", {DType::f32, {16, 8}}, {"seq", "batch"}, {});
    build.input("step", {DType::f32, {}}, {}, {});
    return program;
}

Config option(std::string key, ConfigValue value) {
    Config config("strategy.data");
    config.set(key, std::move(value));
    return config;
}

}  // namespace

TEST_CASE("data strategy: splits the dim batch of every input, and sets the bucket") {
    Program program = two_inputs();
    make_data(Config())->annotate(program, Mesh({{"dp", 4}}));
    REQUIRE(program.marks().size() == 2);
    CHECK(program.marks()[0].value == 0);
    CHECK(program.marks()[0].axis == "dp");
    CHECK(program.marks()[0].placement == Placement::split(0));
    CHECK(program.marks()[0].origin.text() == "data, gpt.lua:12");
    CHECK(program.marks()[1].placement == Placement::split(1));
    CHECK(program.bucket_bytes("dp") == 25 * 1024 * 1024);
}

TEST_CASE("data strategy: reads its options and leaves a mesh without the axis alone") {
    Program program = two_inputs();
    Config options = option("axis", {std::string("replica"), {}});
    options.set("bucket_mib", {int64_t{0}, {}});
    make_data(options)->annotate(program, Mesh({{"dp", 4}}));
    CHECK(program.marks().empty());
    make_data(options)->annotate(program, Mesh({{"replica", 4}}));
    CHECK(program.marks().size() == 2);
    CHECK(program.bucket_bytes("replica") == 0);
}

TEST_CASE("data strategy: refuses what it cannot do") {
    CHECK_THROWS_WITH(make_data(option("bucket_mib", {int64_t{-1}, {"", "gpt.lua", 12, 0}})),
                      Catch::Contains("gpt.lua:12") && Catch::Contains("bucket_mib is -1"));
}
