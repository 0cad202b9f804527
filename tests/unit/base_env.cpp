#include <catch2/catch.hpp>

#include <filesystem>

#include "base/env.h"
#include "folders.h"
#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("the system env reads, replaces, appends and lists files") {
    const auto env = system_env();
    const std::string folder = in_build("env_test");
    std::filesystem::remove_all(folder);
    env->make_folders(folder + "/a/b");
    env->replace_file(folder + "/x", "one");
    env->replace_file(folder + "/x", "two");
    env->append_file(folder + "/x", "!");
    CHECK(env->read_file(folder + "/x") == "two!");
    CHECK(env->list(folder) == std::vector<std::string>{"a", "x"});
    CHECK(env->exists(folder + "/x"));
    CHECK_FALSE(env->exists(folder + "/y"));
    CHECK_THROWS_WITH(env->read_file(folder + "/y"), Contains("cannot read") && Contains("No such file"));
    CHECK_THROWS_WITH(env->replace_file(folder + "/none/y", ""), Contains("cannot write"));
    CHECK(env->list(folder).size() == 2);
    CHECK(env->random_bytes(16) != env->random_bytes(16));
    std::filesystem::remove_all(folder);
}
