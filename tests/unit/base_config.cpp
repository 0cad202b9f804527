#include <catch2/catch.hpp>

#include "base/suggest.h"
#include "orrery/config.h"

using namespace orrery;
using Catch::Matchers::Equals;

namespace {
Config sample() {
    Config root("", {"", "a.toml", 1, 1});
    auto train = std::make_shared<Config>("train", Origin{"", "a.toml", 2, 1});
    train->set("steps", {int64_t{300}, {"", "a.toml", 3, 9}});
    train->set("rate", {0.5, {"", "a.toml", 4, 8}});
    train->set("warmup", {2000.0, {"", "a.toml", 5, 10}});
    train->set("names",
               {ConfigValue::List{{std::string("x")}, {int64_t{2}, {"", "a.toml", 6, 15}}}, {"", "a.toml", 6, 9}});
    root.set("train", {train, {"", "a.toml", 2, 1}});
    root.set("device", {std::string("cpu"), {"", "a.toml", 1, 10}});
    return root;
}
}  // namespace

TEST_CASE("config reads typed values and falls back when they are absent") {
    Config root = sample();
    Config& train = root.table("train");
    CHECK(train.integer("steps", 1) == 300);
    CHECK(train.number("steps", 1) == 300.0);
    CHECK(train.number("rate", 1) == 0.5);
    CHECK(train.integer("absent", 7) == 7);
    CHECK(train.flag("absent", true));
    CHECK(root.text("device", "cuda") == "cpu");
    CHECK(root.require_text("device") == "cpu");
    CHECK(root.table("none").keys().empty());
    CHECK(&root.table("none") == &root.table("none"));
    CHECK(root.table("a").table("b").path() == "a.b");
}

TEST_CASE("config refuses a wrong type with place, key, found and expected") {
    Config root = sample();
    Config& train = root.table("train");
    CHECK_THROWS_WITH(train.text("steps", ""), Equals("a.toml:3:9: train.steps is the integer 300, expected a text"));
    CHECK_THROWS_WITH(train.integer("rate", 0),
                      Equals("a.toml:4:8: train.rate is the number 0.5, expected an integer"));
    CHECK_THROWS_WITH(train.integer("warmup", 0),
                      Equals("a.toml:5:10: train.warmup is the number 2000, expected an integer\n  write it as 2000"));
    CHECK_THROWS_WITH(train.texts("names"), Equals("a.toml:6:15: train.names[2] is the integer 2, expected a text"));
    CHECK_THROWS_WITH(root.table("device"), Equals("a.toml:1:10: device is the text \"cpu\", expected a table"));
    CHECK_THROWS_WITH(train.require_integer("stepz"),
                      Equals("a.toml:2:1: missing stepz in [train], expected an integer\n"
                             "  keys here: names, rate, steps, warmup        did you mean \"steps\"?"));
}

TEST_CASE("config names the first key that nothing has read") {
    Config root = sample();
    CHECK_THROWS_WITH(root.reject_unused(), Equals("a.toml:2:1: unknown table \"train\"\n  nothing is read here"));
    Config& train = root.table("train");
    root.text("device", "");
    train.integer("stepps", 0);
    train.number("rate", 0);
    CHECK_THROWS_WITH(root.reject_unused(), Equals("a.toml:3:9: unknown key \"steps\" in [train]\n"
                                                   "  known here: rate, stepps        did you mean \"stepps\"?"));
    train.integer("steps", 0);
    train.number("warmup", 0);
    CHECK_THROWS(train.texts("names"));
    CHECK_NOTHROW(root.reject_unused());
}

TEST_CASE("edit distance counts swaps of neighbours as one") {
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("ncll", "nccl") == 1);
    CHECK(edit_distance("recieve", "receive") == 1);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(closest("ncll", {"gloo", "nccl", "shm"}) == "nccl");
    CHECK(closest("tcp", {"gloo", "nccl", "shm"}).empty());
}
