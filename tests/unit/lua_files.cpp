// Runs every tests/lua/test_*.lua: a test in Lua fails by an error.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "folders.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

TEST_CASE("tests in Lua", "[slow]") {
    const std::filesystem::path folder = in_source("tests/lua");
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with("test_")) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    REQUIRE_FALSE(files.empty());
    for (const auto& file : files) {
        INFO(file);
        FakeHost host(
            "[lua]\nallow = [\"io\"]\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n[train]\n"
            "sequences_per_step = 2\nsteps = 10\n[plugins]\npath = [\"" +
            in_source("") + "\"]\n");
        try {
            run_script(file, host);
        } catch (const Error& error) {
            FAIL_CHECK(error.what());
        }
        for (const std::string& line : host.lines) UNSCOPED_INFO(line);
        CHECK(host.lines == std::vector<std::string>{"ok"});
    }
}
