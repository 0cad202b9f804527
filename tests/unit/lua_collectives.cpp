// Collective algorithms in Lua.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "../lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// A host with [collectives] dp = NAME on so many ranks.
class CollectiveHost : public FakeHost {
public:
    CollectiveHost(const std::string& name, int64_t members) {
        collectives = {{"dp", members, name, {"", "test.toml", 3, 1}}};
    }
    void use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> made) override {
        CHECK(choice.axis == "dp");
        for (const ChunkTable& table : made) prove(table);
        tables = std::move(made);
    }
    std::vector<ChunkTable> tables;
};

/// The tables of a module written as `text`.
std::vector<ChunkTable> own(const std::string& text, int64_t members) {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / "orrery_lua_collectives";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "my_own.lua") << text;
    CollectiveHost host("my_own", members);
    run_script_text("", "script.lua", folder, host);
    return host.tables;
}

void refused(const std::string& text, const std::vector<std::string>& parts) {
    try {
        own(text, 3);
        FAIL("accepted");
    } catch (const Error& error) {
        for (const std::string& part : parts) has(error.what(), part);
    }
}

}  // namespace

TEST_CASE("the library's collectives are the built-in ones, move by move", "[lua_collectives]") {
    const int members = GENERATE(2, 3, 4, 6, 8, 13);
    for (const ChunkTable& built_in : {ring_table(members), recursive_doubling_table(members),
                                       halving_doubling_table(members), tree_table(members)}) {
        INFO(built_in.name << " on " << members);
        CollectiveHost host(built_in.name, members);
        run_script_text("", "script.lua", ".", host);
        REQUIRE(!host.tables.empty());
        const ChunkTable& made = host.tables[0];
        CHECK(made.collective == Opcode::all_reduce);
        CHECK(made.chunks == built_in.chunks);
        CHECK(made.moves == built_in.moves);
        CHECK(made.text() == built_in.text());
        if (built_in.name == "ring") CHECK(host.tables.size() == 3);
    }
}

TEST_CASE("a module beside the script is found before the library's", "[lua_collectives]") {
    const auto tables = own(R"(local c = require "orrery.collective"
return { all_reduce = function(ranks)
  local up, down = {}, {}
  for r = 1, ranks - 1 do
    up[r] = c.reduce(0, r, 0)
    down[r] = c.copy(0, 0, r)
  end
  return { chunks = 1, steps = { up, down } }
end })",
                            5);
    REQUIRE(tables.size() == 1);
    CHECK(tables[0].moves.size() == 8);
    CHECK(tables[0].moves[0].origin.line == 5);
    CHECK(cost(tables[0]).steps == 2);
}

TEST_CASE("broken collectives are refused at their line", "[lua_collectives]") {
    const std::string head = "local c = require 'orrery.collective'\nreturn { all_reduce = function(ranks)\n";
    const std::string tail = "\nend }";
    refused(
        head + "return { chunks = 1, steps = {{ c.reduce(0, 1, 0) },\n{ c.copy(0, 0, 1), c.copy(0, 0, 2) }} }" + tail,
        {"my_own.lua:3", "chunk 0 of rank 0 is incomplete: the part of rank 2 is missing", "step 0"});
    refused(head + "return { chunks = 1, steps = {{ c.reduce(0, 1, 0) },\n{ c.reduce(0, 1, 0) }} }" + tail,
            {"my_own.lua:4", "adds the part of rank 1 twice", "step 1"});
    refused(head + "return { chunks = 1, steps = {{ c.copy(0, 0, 1), \nc.copy(0, 1, 2) }} }" + tail,
            {"my_own.lua:", "a race", "step 0"});
    refused(head + "return { chunks = 1, steps = {{ c.copy(0, 0, 'x') }} }" + tail, {"my_own.lua:3", "copy"});
    refused(head + "return { chunks = 1, steps = {{ 7 }} }" + tail, {"my_own.lua:2", "steps[1][1] is the number 7"});
    refused(head + "return 7" + tail, {"my_own.lua:2", "returned the number 7"});
    refused(head + "return { chunks = 1, stepz = {} }" + tail, {"steps is nil"});
    refused("return { all_reduc = 1 }", {"all_reduc"});
    refused("return {}", {"none of all_reduce"});
    refused("return 1", {"test.toml:3", "returns the number 1"});
    CollectiveHost nobody("nobody", 2);
    CHECK_THROWS_WITH(run_script_text("", "script.lua", ".", nobody),
                      Catch::Contains("test.toml:3") && Catch::Contains("collective \"nobody\" not found"));
}
