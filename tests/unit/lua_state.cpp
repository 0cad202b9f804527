#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "folders.h"
#include "lua/deadline.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// What the script printed, one line each.
std::string run(const std::string& script, FakeHost& host) {
    run_script_text(script, "a.lua", in_source("tests/lua"), host);
    std::string out;
    for (const std::string& line : host.lines) out += line + "\n";
    return out;
}

std::string run(const std::string& script, const std::string& toml = "") {
    FakeHost host(toml);
    return run(script, host);
}

std::string failure(const std::string& script, const std::string& toml = "") {
    try {
        run(script, toml);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

struct Special : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace

TEST_CASE("scripts print through the host") { CHECK(run("print('a', 1, nil)\nprint()") == "a\t1\tnil\n\n"); }

TEST_CASE("pairs visits keys in order") {
    CHECK(run("for k, v in pairs{ z = 1, a = 2, 7, 8, m = 3 } do print(k, v) end") == "1\t7\n2\t8\na\t2\nm\t3\nz\t1\n");
    CHECK(run("local t = {a=1,b=2,c=3} for k in pairs(t) do t.b = nil print(k) end") == "a\nc\n");
}

TEST_CASE("random numbers are the same on every rank") {
    CHECK(run("print(math.random(1, 1 << 40))") == run("print(math.random(1, 1 << 40))"));
    CHECK(run("print(math.random(1, 1 << 40))") != run("print(math.random(1, 1 << 40))", "[run]\nseed = 2\n"));
}

TEST_CASE("scripts get no files, no bytecode, no system") {
    CHECK(run("print(io, os, debug, dofile, loadfile, string.dump, package)") == "nil\tnil\tnil\tnil\tnil\tnil\tnil\n");
    CHECK(has(run("print(load('\\27Lua'))"), "attempt to load a binary chunk"));
    CHECK(run("print(load('return 1 + 1')())") == "2\n");
    CHECK(has(failure("\x1bLua"), "a.lua: is Lua bytecode"));
    CHECK(has(run("print(type(os.time))", "[lua]\nallow = [\"os\"]\n"), "function"));
    CHECK(has(failure("", "[lua]\nallow = [\"ios\"]\n"), "test.toml:2:9: no library \"ios\""));
}

TEST_CASE("errors name the line and the calls that led there") {
    const std::string text = failure("local function f()\n  error('no luck')\nend\nf()\n");
    CHECK(has(text, "a.lua:2: no luck"));
    CHECK(has(text, "called from a.lua:4"));
    CHECK(has(failure("x = = 1"), "a.lua:1: unexpected symbol near '='"));
    CHECK(has(failure("local t = nil\nprint(t.x)"), "a.lua:2: attempt to index a nil value (local 't')"));
    CHECK(failure("error({})") == "a.lua:1: {}");
    CHECK(failure("error(nil)") == "a.lua:1: nil");
    CHECK(failure("\nerror { 7, message = 'full', code = 5 }") ==
          "a.lua:2: full\n  raised: { 7, code = 5, message = \"full\" }");
    CHECK(failure("local t = {} for i = 1, 20 do t[i] = i end error(t)") ==
          "a.lua:1: { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... }");
}

TEST_CASE("exceptions of the host cross the script") {
    FakeHost host;
    host.on_options = [] { throw Special("mine"); };
    CHECK_THROWS_AS(run("require 'orrery'.options { a = 1 }", host), Special);
    host.on_options = [] { throw Error("disk full", Fault::failed); };
    try {
        run("local o = require 'orrery'\no.options { a = 1 }", host);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::failed);
        CHECK(has(error.what(), "disk full"));
    }
}

TEST_CASE("a caught host error stays an error value with text") {
    FakeHost host;
    host.on_options = [] { throw Error("disk full", Fault::failed); };
    CHECK(run("local ok, e = pcall(require 'orrery'.options, { a = 1 })\nprint(ok, e)", host) == "false\tdisk full\n");
}

TEST_CASE("a script that does not end is stopped") {
    const std::string toml = "[lua]\ninstructions_million = 2\n";
    const std::string text = failure("local x = 0\nwhile true do\n  x = x + 1\nend", toml);
    CHECK((has(text, "a.lua:3: instruction limit exceeded: still running after 2 million") ||
           has(text, "a.lua:2: instruction limit exceeded: still running")));
    CHECK(has(text, "--set lua.instructions_million=4"));
    CHECK(has(failure("while true do pcall(function() while true do end end) end", toml),
              "still running after 2 million"));
    CHECK(has(failure("coroutine.wrap(function() while true do end end)()", toml), "still running after 2 million"));
}

TEST_CASE("a call that works off more than the limit is refused before it begins") {
    const std::string toml = "[lua]\ninstructions_million = 2\n";
    CHECK(has(failure("local t = {}\ntable.move({}, 1, 2^53, 2)", toml),
              "a.lua:2: move: 9007199254740992 elements exceed the limit of 2 million instructions"));
    CHECK(has(failure("(''):rep(1 << 40)", toml), "a.lua:1: rep: 1099511627776 elements"));
    CHECK(has(failure("local t = {}\nfor i = 1, 3 do table.move(t, 1, 900000, 2) end", toml), "a.lua:2: move: 900000"));
    CHECK(run("local t = { 3, 1, 2 }\ntable.sort(t)\ntable.insert(t, 1, 0)\ntable.insert(t, 4)\n"
              "table.move(t, 1, 5, 2)\ntable.remove(t, 1)\nprint(table.concat(t, ','), table.unpack(t, 2, 3))\n"
              "print(('ab'):rep(2, '-'), ('x'):rep(-1), #t)") == "0,1,2,3,4\t1\t2\nab-ab\t\t5\n");
    CHECK(has(failure("table.move()"), "a.lua:1: bad argument #2 to 'move'"));
    CHECK(has(failure("table.concat({ {} })"), "invalid value (table) at index 1 in table for 'concat'"));
}

TEST_CASE("metatables have no __gc") {
    CHECK(has(failure("setmetatable({}, { __gc = print })"), "a.lua:1: setmetatable: __gc is not supported"));
    CHECK(run("print(getmetatable(setmetatable({}, { __name = 'x' })).__name)") == "x\n");
    CHECK(has(failure("debug.setmetatable({}, { __gc = print })", "[lua]\nallow = [\"debug\"]\n"),
              "__gc is not supported"));
}

TEST_CASE("a deep recursion is told by both ends", "[slow]") {
    const std::string text = failure("local function f() return 1 + f() end\n\nf()");
    CHECK(has(text, "a.lua:1: stack overflow"));
    CHECK(has(text, " more calls\n  called from a.lua:3"));
    CHECK(std::count(text.begin(), text.end(), '\n') < 12);
}

TEST_CASE("processor time that the host takes is not the script's", "[slow]") {
    std::atomic<int> late = 0;
    const auto burn = [&](double seconds) {
        const std::clock_t begin = std::clock();
        while (late == 0 && static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < seconds) {
        }
    };
    Origin last;
    {
        lua::Deadline deadline(0.2, [&](const Origin& seen) { last = seen, ++late; });
        deadline.see({"", "a.lua", 7, 0});
        {
            const lua::Deadline::Pause paused(&deadline);
            const lua::Deadline::Pause within(&deadline);
            burn(0.4);
        }
        CHECK(late == 0);
        burn(60);
    }
    CHECK(late == 1);
    CHECK(last.text() == "a.lua:7");
    {
        const lua::Deadline unused(1e9, [&](const Origin&) { ++late; });
    }
    CHECK(late == 1);
}

TEST_CASE("the time limit is a key of the command in the script's table") {
    const std::string options = "print(require 'orrery'.options { lr = 1 }.lr)";
    CHECK(run(options, "[script]\ntimeout_s = 5\nlr = 2\n") == "2\n");
    CHECK(run("print(1)", "[script]\ntimeout_s = 5.5\n") == "1\n");
    CHECK(has(failure("require 'orrery'.options { timeout_s = 1 }"), "a.lua:1: o.options: script.timeout_s"));
}

TEST_CASE("a script that eats memory is stopped") {
    const std::string toml = "[lua]\nmemory_mib = 8\n";
    const std::string text = failure("local t = {}\nfor i = 1, 1e9 do\n  t[i] = ('x'):rep(1000) .. i\nend", toml);
    CHECK(has(text, "a.lua:3: out of memory: the script needs more than 8 MiB"));
    CHECK(has(text, "--set lua.memory_mib=16"));
    CHECK(has(failure("local s = ('x'):rep(1 << 40)", toml), "a.lua:1: "));
}

TEST_CASE("require finds the library and modules beside the script") {
    CHECK(run("print(require 'beside'.name)\nprint(require 'beside' == require 'beside')") == "beside\ntrue\n");
    CHECK(run("print(coroutine.wrap(function() return require 'beside'.name end)())") == "beside\n");
    CHECK(has(failure("require 'nowhere'"), "a.lua:1: no module \"nowhere\""));
    CHECK(has(failure("require '../x'"), "bad module name"));
    CHECK(has(failure("require 'circle'"), "circular require"));
    CHECK(has(failure("require 'broken'"), "broken.lua:2: on purpose"));
    CHECK(has(failure("require 'broken'"), "called from a.lua:1"));
    const std::string twice = run("for _ = 1, 2 do print(select(2, pcall(require, 'broken'))) end");
    CHECK(twice.find("broken.lua:2: on purpose") != twice.rfind("broken.lua:2: on purpose"));
    CHECK(twice.find("circular require") == std::string::npos);
    CHECK(has(failure("", "[lua]\nlibrary = \"/nowhere\"\n"), "script library not found"));
}

TEST_CASE("the configuration is read-only and knows its keys") {
    const std::string toml = "[mesh]\npp = 1\ndp = 2\n[train]\nsteps = 7\n[plugins]\npath = [\"a\"]\n";
    CHECK(run("local c = require 'orrery'.config\nprint(c.train.steps, c.run.device, c.data.path, c.plugins.path[1])\n"
              "for axis, size in pairs(c.mesh) do print(axis, size) end",
              toml) == "7\tcpu\tnil\ta\npp\t1\ndp\t2\n");
    CHECK(has(failure("require 'orrery'.config.train.stepz = 3"), "o.config is read-only"));
    const std::string text = failure("print(require 'orrery'.config.train.stepz)");
    CHECK(has(text, "a.lua:1: unknown configuration key \"stepz\" in [train]"));
    CHECK(has(text, "did you mean \"steps\"?"));
    CHECK(has(failure("print(require 'orrery'.config.tain)"), "did you mean \"train\"?"));
}

TEST_CASE("options are declared with defaults and set by [script]") {
    FakeHost host("[script]\nsteps = 5\nname = \"x\"\n");
    CHECK(
        run("local opt = require 'orrery'.options { steps = { 300, 'how many' }, lr = 1e-3, name = '', fast = false }\n"
            "print(opt.steps, opt.lr, opt.name, opt.fast)",
            host) == "5\t0.001\tx\tfalse\n");
    REQUIRE(host.declared.size() == 4);
    CHECK(host.declared[0].key == "fast");
    CHECK(host.declared[3].key == "steps");
    CHECK(host.declared[3].fallback == "300");
    CHECK(host.declared[3].value == "5");
    CHECK(host.declared[2].value == "x");
    CHECK(host.declared[0].value == "false");
    CHECK(host.declared[3].help == "how many");
    const std::string script = "require 'orrery'.options { steps = 300 }";
    CHECK(has(failure(script, "[script]\nstep = 3\n"), "test.toml:2:8: the script has no option \"step\""));
    CHECK(has(failure(script, "[script]\nstep = 3\n"), "did you mean \"steps\"?"));
    CHECK(has(failure(script, "[script]\nsteps = \"3\"\n"), "test.toml:2:9: script.steps is the text \"3\""));
    CHECK(has(failure("require 'orrery'.options { steps = {} }"), "the default of steps is nil"));
}
