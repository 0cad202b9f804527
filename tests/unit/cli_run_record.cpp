// run.json.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/env.h"
#include "base/json.h"
#include "cli/run_record/kept_script.h"
#include "cli/run_record/run_record.h"
#include "config/load.h"
#include "folders.h"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path;
    explicit Folder(const std::string& name) : path(in_build("tests/run_record_" + name)) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    void write(const std::string& file, const std::string& text) const {
        fs::create_directories(fs::path(path + "/" + file).parent_path());
        std::ofstream(path + "/" + file) << text;
    }
    Json record() const { return Json::parse(system_env()->read_file(path + "/run.json")); }
};

}  // namespace

TEST_CASE("run.json tells of a start, of its end once, and of those before") {
    const Folder folder("starts");
    folder.write("run.json", "{ cut");
    {
        RunRecord record(folder.path, {{"command", {"orrery", "run"}}, {"hosts", nullptr}});
        const Json begun = folder.record();
        CHECK(begun["command"].size() == 2);
        CHECK(begun["end"].is_null());
        CHECK(begun["before"].empty());
        CHECK(begun["start"].get<std::string>().size() == std::string("2026-11-25T14:36:41Z").size());
        record.add({{"hosts", {"n1"}}});
        CHECK(folder.record()["hosts"][0] == "n1");
        end_run_record("stopped by signal 15", 75);
        end_run_record("done", 0);
        CHECK(folder.record()["why"] == "stopped by signal 15");
        CHECK(folder.record()["exit_code"] == 75);
    }
    end_run_record("nobody is told", 1);
    { const RunRecord killed(folder.path, {{"command", {"second"}}}); }
    const RunRecord third(folder.path, {{"command", {"caf\xe9"}}});
    const Json now = folder.record();
    REQUIRE(now["before"].size() == 2);
    CHECK(now["before"][0]["why"] == "stopped by signal 15");
    CHECK(now["before"][1]["ranks"].is_null());
    CHECK(now["before"][1]["end"].is_null());
    CHECK_FALSE(now["before"][1].contains("before"));
    CHECK(now["command"][0] == "caf\xef\xbf\xbd");
    CHECK(utc_text(1795617079.7) == "2026-11-25T14:31:19Z");
}

TEST_CASE("of starts before, run.json keeps what is small") {
    const Folder folder("short");
    const std::vector<std::string> long_ones(1000, "device/cpu");
    const Json start = {{"command", long_ones}, {"revision", {{"commit", "abc"}, {"clean", true}}},
                        {"version", "1.0"},     {"plugins", long_ones},
                        {"plan", "f00d"},       {"hosts", nullptr}};
    // What a program has left that kept everything.
    folder.write("run.json", Json{{"start", "s"}, {"plugins", long_ones}, {"before", {start, 3}}}.dump());
    for (int i = 0; i < 10; ++i) {
        RunRecord record(folder.path, start);
        record.add({{"hosts", {{{"host", "n1"}, {"ranks", {0, 1}}}, {{"host", "n2"}, {"ranks", {2}}}}}});
        end_run_record("done", 0);
    }
    const Json now = folder.record();
    REQUIRE(now["before"].size() == 11);
    CHECK(now["before"][0] ==
          Json{{"version", "1.0"}, {"revision", start["revision"]}, {"plan", "f00d"}, {"ranks", nullptr}});
    CHECK(now["before"][1] == Json{{"start", "s"}, {"ranks", nullptr}});
    for (size_t i = 2; i < 11; ++i) {
        const Json& before = now["before"][i];
        CHECK(before["why"] == "done");
        CHECK(before["exit_code"] == 0);
        CHECK(before["ranks"] == 3);
        CHECK(before.size() == 8);
    }
    CHECK(now["before"].dump().size() < 11 * 250);
    CHECK(now["plugins"].size() == 1000);
}

TEST_CASE("a run's script is kept where its modules are, or as script.lua alone") {
    const Folder folder("kept_script");
    Config config = parse_config("[run]\nscript = \"some/where/mine.lua\"\n", "config.toml");
    CHECK(kept_script_of(folder.path, config) == folder.path + "/script.lua");
    folder.write("lua/mine.lua/none", "");  // no file
    CHECK(kept_script_of(folder.path, config) == folder.path + "/script.lua");
    fs::remove_all(folder.path + "/lua");
    folder.write("lua/mine.lua", "");
    CHECK(kept_script_of(folder.path, config) == folder.path + "/lua/mine.lua");
    Config unnamed = parse_config("", "config.toml");
    CHECK(kept_script_of(folder.path, unnamed) == folder.path + "/script.lua");
}
