// The program published: what it exits with, and what it says and writes of rows that it cannot predict.
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "folders.h"
#include "published/keep.h"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

constexpr const char* columns =
    "id,gpu,n_gpus,layers,hidden,heads,ffn,vocab,seq,micro_batch,global_batch,recompute,iter_time_s\n";
/// One that can be predicted; two sequences.
constexpr const char* good = "good,H100-80G-SXM,2,2,64,4,128,512,32,1,2,none,\n";

struct Ran {
    int code = -1;
    std::string errors;
};

std::string path(const std::string& name) { return in_build("tests/published_program." + name); }

std::string text_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

Ran ran(const std::string& rows, const std::string& options) {
    std::ofstream(path("csv")) << columns << rows;
    const std::string command =
        in_build("published") + " " + path("csv") + " " + options + " > /dev/null 2> " + path("errors");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(path("errors"))};
}

}  // namespace

TEST_CASE("published: options that are none are the user's mistake", "[published]") {
    for (const char* options :
         {"--every 0", "--every x", "--every 2x", "--every -1", "--every", "--what", "--every 2 --every 3"}) {
        INFO(options);
        const Ran one = ran(good, options);
        CHECK(one.code == 2);
        CHECK(one.errors.find("published: ") == 0);
    }
}

TEST_CASE("published: a row that is not predicted is named with its reason, and none is a failure", "[published]") {
    const std::string bad = "bad,H100-80G-SXM,8,2,64,4,128,512,32,,12,none,\n", out = path("out");
    const Ran both = ran(std::string(good) + bad, "--out " + out);
    CHECK(both.code == 0);
    CHECK_THAT(both.errors, Catch::Contains("not predicted: bad: ") && Catch::Contains("global_batch 12"));
    const std::string text = text_of(out);
    CHECK_THAT(text, Catch::Contains("\ngood,0.") && Catch::Contains("\nbad,,,,,,,,\"row bad: global_batch 12"));
    const Ran none = ran(bad, "--out " + out);
    CHECK(none.code == 1);
    CHECK_THAT(text_of(out), Catch::Contains("\nbad,,,") && !Catch::Contains("good"));
}

TEST_CASE("published: predictions that cannot be written are a failure", "[published]") {
    if (fs::exists("/dev/full")) {
        const Ran full = ran(good, "--out /dev/full");
        CHECK(full.code == 1);
        CHECK_THAT(full.errors, Catch::Contains("cannot write /dev/full"));
        CHECK(fs::is_character_file("/dev/full"));
    }
    CHECK(ran(good, "--out /dev/stdout").code == 0);
}

TEST_CASE("published: kept graphs are of one Lua library", "[published]") {
    const std::string library = path("library");
    fs::remove_all(library);
    fs::create_directories(library + "/schedules");
    const auto write = [&](const std::string& name, const char* code) { std::ofstream(library + "/" + name) << code; };
    write("a.lua", "return 1");
    write("schedules/b.lua", "return 2");
    const std::string before = published::text_of_scripts(library);
    write("notes.txt", "no code");
    CHECK(published::text_of_scripts(library) == before);
    write("schedules/b.lua", "return 3");
    const std::string changed = published::text_of_scripts(library);
    CHECK(changed != before);
    fs::rename(library + "/schedules/b.lua", library + "/schedules/c.lua");
    CHECK(published::text_of_scripts(library) != changed);
    CHECK_THAT(published::text_of_scripts(in_source("scripts/orrery")), Catch::Contains("schedules/zbv.lua "));
}

TEST_CASE("published: where predictions go is looked at before the work", "[published]") {
    for (const std::string& out : {std::string("''"), in_build("tests"), path("no_such_folder") + "/out.csv"}) {
        INFO(out);
        const Ran one = ran(good, "--out " + out);
        CHECK(one.code == 2);
        CHECK_THAT(one.errors, Catch::StartsWith("published: --out "));
    }
}

TEST_CASE("published: nothing is fitted on no measured row", "[published]") {
    for (const char* options : {"--fit", "--halves", "--leave-out"}) {
        INFO(options);
        const Ran one = ran(good, options);
        CHECK(one.code == 2);
        CHECK_THAT(one.errors, Catch::Contains("no row to fit on"));
    }
}

TEST_CASE("published: a row of which graph and simulator differ is not predicted", "[published]") {
    const std::string mine = path("mine"), other = path("other"), out = path("out");
    fs::remove_all(mine), fs::remove_all(other);
    const std::string longer = "good,H100-80G-SXM,2,2,64,4,128,512,64,1,2,none,\n";
    REQUIRE(ran(longer, "--quick --keep " + other).code == 0);
    REQUIRE(ran(good, "--explain good --keep " + mine).code == 0);
    const fs::path graph = fs::directory_iterator(mine)->path();
    fs::copy_file(fs::directory_iterator(other)->path(), graph, fs::copy_options::overwrite_existing);
    const Ran one = ran(good, "--explain good --keep " + mine + " --out " + out);
    CHECK(one.code == 1);
    CHECK_THAT(text_of(out), Catch::Contains("\ngood,,,,,,,,\"its graph says"));
}
