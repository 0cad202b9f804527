#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "base/env.h"
#include "base/files/atomic_file.h"
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

TEST_CASE("a file gets its name when it is whole, and keeps its mode") {
    namespace fs = std::filesystem;
    const std::string folder = in_build("atomic_file"), path = folder + "/x";
    fs::remove_all(folder);
    fs::create_directories(folder);
    const std::string large(200'000, 'l');
    std::ofstream(path) << "old";
    std::ofstream(path + ".part") << "left by a process that was killed" << large;
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    {
        AtomicFile file(path);
        file.open();
        file.write("not finished");
    }
    CHECK(system_env()->list(folder) == std::vector<std::string>{"x"});
    AtomicFile file(path);
    for (const bool durable : {false, true}) {
        file.open();
        file.write("small ");
        file.write(large);
        file.write(" end");
        file.close(durable);
        file.name(durable);
        CHECK(system_env()->read_file(path) == "small " + large + " end");
    }
    CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
    for (const unsigned old : {0666U, 0400U}) {  // a secret is not for those for whom its predecessor was
        fs::permissions(path, fs::perms(old));
        AtomicFile secret(path, ".part", 0600);
        secret.open();
        CHECK(fs::status(path + ".part").permissions() == fs::perms(0600));
        secret.close();
        secret.name();
        CHECK(fs::status(path).permissions() == fs::perms(0600));
    }
    fs::remove(path);
    fs::create_directory(path);
    file.open();
    file.close();
    CHECK_THROWS_WITH(file.name(), Contains("cannot write " + path + ": Is a directory"));
    CHECK(system_env()->list(folder) == std::vector<std::string>{"x"});
    AtomicFile nowhere(folder + "/none/y");
    CHECK_THROWS_WITH(nowhere.open(), Contains("cannot write " + folder + "/none/y: No such file"));
    fs::remove_all(folder);
}
