// The strategies data and zero, loaded as the plugins that they are: marks, options, refusals.
#include <catch2/catch.hpp>

#include "folders.h"
#include "ir/build.h"
#include "orrery/strategy.h"
#include "plugin/loader.h"

using namespace orrery;

namespace {

std::unique_ptr<Strategy> make(const std::string& name, Config options) {
    Registry registry;
    Loader({in_build("plugins")}).load("strategy", name, registry, {});
    return registry.strategy(name, {})(options, Origin{"", "gpt.lua", 12, 0});
}
std::unique_ptr<Strategy> make_data(Config options) { return make("data", std::move(options)); }

Program two_inputs() {
    Program program;
    Builder build(program);
    build.input("tokens", {DType::i32, {8, 16}}, {"batch", "seq"}, {});
    build.input("mask", {DType::f32, {16, 8}}, {"seq", "batch"}, {});
    build.input("step", {DType::f32, {}}, {}, {});
    return program;
}

/// The dim that a store mark splits over the axis.
std::optional<int> split_over(const Program& program, ValueId value, const std::string& axis) {
    for (const Mark& mark : program.marks())
        if (mark.value == value && mark.what == Mark::What::store && mark.axis == axis) return mark.placement.dim;
    return std::nullopt;
}

ConfigValue list(const std::vector<std::string>& words) {
    ConfigValue::List all;
    for (const std::string& word : words) all.push_back({word, {}});
    return {std::move(all), {"", "gpt.lua", 12, 0}};
}

Config option(std::string key, ConfigValue value, const std::string& path = "strategy.data") {
    Config config(path);
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

TEST_CASE("data strategy: codecs by axis, and feedback that no axis has is refused") {
    const auto said = [](const std::string& codec, const Mesh& mesh) -> std::string {
        Config options = option("axis", list({"rep", "dp"}));
        options.set("codec", {codec, {}});
        options.set("feedback", {true, {}});
        Program program = two_inputs();
        try {
            make_data(options)->annotate(program, mesh);
        } catch (const Error& error) {
            return error.what();
        }
        std::string axes;
        for (const std::string axis : {"rep", "dp"})
            if (program.edge(axis, Phase::backward).flag("feedback")) axes += axis;
        return axes;
    };
    const Mesh four({{"rep", 2}, {"dp", 2}}), two({{"rep", 1}, {"dp", 2}});
    CHECK(said("int8", four) == "repdp");
    CHECK(said("rep=int4,dp=bf16", four) == "rep");
    CHECK(said("dp=int4", two) == "dp");
    const std::string none = "strategy data: feedback has no effect: each axis (rep, dp)";
    for (const std::string codec : {"rep=bf16", "rep=none", "rep=bf16,dp=f16"})
        CHECK_THAT(said(codec, four), Catch::Contains(none));
    CHECK_THAT(said("rep=int8", two), Catch::Contains(none));
    CHECK_THAT(said("int8", Mesh({{"rep", 1}, {"dp", 1}})), Catch::Contains(none));
    CHECK_THAT(said("pp=int8", four), Catch::Contains("\"pp\" is not an axis over which"));
    CHECK_THAT(said("dp=int8,dp=int4", four), Catch::Contains("it names the axis dp twice"));
}

TEST_CASE("data strategy: a list of axes splits the batch over each that the mesh has") {
    Program program = two_inputs();
    make_data(option("axis", list({"dp", "none", "cp"})))->annotate(program, Mesh({{"cp", 2}, {"dp", 4}}));
    REQUIRE(program.marks().size() == 4);
    for (size_t i = 0; i < 4; ++i) {
        CHECK(program.marks()[i].axis == (i < 2 ? "dp" : "cp"));
        CHECK(program.marks()[i].placement == Placement::split(i % 2 == 0 ? 0 : 1));
    }
    CHECK(program.bucket_bytes("cp") == 25 * 1024 * 1024);
    CHECK(program.bucket_bytes("dp") == 25 * 1024 * 1024);
}

TEST_CASE(
    "data strategy: an axis that splits another dim of an input already is left alone, and still has its bucket") {
    Program program = two_inputs();
    program.store(0, "cp", Placement::split(1), Origin{"context", "gpt.lua", 11, 0});
    make_data(option("axis", list({"dp", "cp"})))->annotate(program, Mesh({{"dp", 4}, {"cp", 2}}));
    CHECK(program.marks().size() == 3);
    CHECK(program.ignored().empty());
    CHECK(split_over(program, 0, "cp") == 1);
    CHECK(split_over(program, 1, "cp") == std::nullopt);
    CHECK(program.bucket_bytes("cp") == 25 * 1024 * 1024);
}

TEST_CASE("zero strategy: a param is split over those axes that do not split it already, and as many as divide it") {
    Program program = two_inputs();
    Builder build(program);
    const auto param = [&](const char* name, Shape shape) {
        return build.param(name, {DType::f32, std::move(shape)}, {"rows", "columns"}, {}, {});
    };
    const ValueId both = param("both", {6, 8}), expert = param("expert", {8, 8}), one = param("one", {6, 6}),
                  neither = param("neither", {3, 3});
    program.store(expert, "cp", Placement::split(0), Origin{"experts", "gpt.lua", 11, 0});
    Config options = option("axis", list({"dp", "cp"}), "strategy.zero");
    options.set("stage", {int64_t{3}, {}});
    make("zero", options)->annotate(program, Mesh({{"dp", 2}, {"cp", 2}}));
    CHECK(split_over(program, both, "dp") == 1);  // 6 rows are not a multiple of 4
    CHECK(split_over(program, both, "cp") == 1);
    CHECK(split_over(program, expert, "dp") == 0);
    CHECK(split_over(program, expert, "cp") == 0);
    CHECK(split_over(program, one, "dp") == 0);
    CHECK(split_over(program, one, "cp") == std::nullopt);
    CHECK(split_over(program, neither, "dp") == std::nullopt);
    std::vector<std::string> notes;
    for (const Remark& remark : program.remarks())
        notes.push_back(program.value(remark.value).name + " " + remark.text);
    CHECK(notes == std::vector<std::string>{"one whole over cp=2: no dim divides",
                                            "neither whole over dp=2: no dim divides",
                                            "neither whole over cp=2: no dim divides"});
    CHECK(program.ignored().empty());
}

TEST_CASE("data and zero strategies: lists of axes that say nothing or the same twice are refused") {
    for (const std::string name : {"data", "zero"}) {
        const auto refused = [&](ConfigValue axes, const std::string& why) {
            CHECK_THROWS_WITH(make(name, option("axis", std::move(axes), "strategy." + name)),
                              Catch::Contains("gpt.lua:12") && Catch::Contains("strategy " + name + ": axis " + why));
        };
        refused({std::make_shared<Config>(), {"", "gpt.lua", 12, 0}}, "is an empty list; name at least one axis");
        refused(list({"dp", "cp", "dp"}), "names the axis dp twice; name each once");
    }
    Config options = option("axis", list({"dp", "cp"}), "strategy.zero");
    options.set("replicate", {std::string("cp"), {}});
    CHECK_THROWS_WITH(make("zero", options), Catch::Contains("replicate is cp, an axis that it splits over"));
}
