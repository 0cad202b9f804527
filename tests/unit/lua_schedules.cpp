// The schedules of the library: their closed forms, and a user's own.
#include "lua/script.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "cases.h"
#include "folders.h"
#include "lua/fake_host.h"
#include "plan/check/check_schedule.h"
#include "plan/timeline.h"

using namespace orrery;

namespace {

struct Library {
    FakeHost host;

    Schedule make(const std::string& name, int64_t p, int64_t m, int v = 1) {
        return load_schedule({"pp", name, v, {}}, p, m, {}, host);
    }
};

/// Makespan as the closed form has it: all idle time of a rank is `idle` units of those that its fragments take.
bool ends_after(const Timeline& t, int64_t work, int64_t idle) {
    return t.makespan == work + idle &&
           std::all_of(t.busy.begin(), t.busy.end(), [&](int64_t busy) { return busy == work; });
}

}  // namespace

namespace {

/// Pipelines of 2 to 16 ranks, each with `counts(p)` micro-batches.
void check_closed_forms(const std::function<std::vector<int64_t>(int64_t p)>& counts) {
    Library library;
    for (int64_t p = 2; p <= 16; ++p)
        for (int64_t m : counts(p)) {
            INFO("p = " << p << ", m = " << m);
            bool good = true;
            const auto is = [&](const Timeline& t, auto peak) {
                for (int64_t s = 0; s < p; ++s) good = good && t.peak[static_cast<size_t>(s)] == peak(s);
            };
            // F takes 1 and B with its W 2: the bubble is p-1 of m+p-1 micro-batches.
            const Timeline gpipe = timeline(library.make("gpipe", p, m));
            good = good && ends_after(gpipe, 3 * m, 3 * (p - 1));
            is(gpipe, [&](int64_t) { return m; });
            const Timeline one = timeline(library.make("1f1b", p, m));
            good = good && ends_after(one, 3 * m, 3 * (p - 1));
            is(one, [&](int64_t s) { return std::min(p - s, m); });
            const Timeline zero = timeline(library.make("zb_h1", p, m));
            good = good && ends_after(zero, 3 * m, p - 1);
            is(zero, [&](int64_t) { return p; });
            const Timeline vee = timeline(library.make("zbv", p, m, 2));
            if (m >= 2 * p - 1) {
                good = good && ends_after(vee, 6 * m, p - 1);
                is(vee, [&](int64_t) { return 2 * p; });
                for (const auto& rank : vee.ranks) good = good && rank.back().end - rank.front().start == 6 * m;
            }
            for (int v : {2, 3, 4}) {
                if (m % p != 0) continue;
                const Timeline chunks = timeline(library.make("interleaved", p, m, v));
                good = good && ends_after(chunks, 3 * v * m, 3 * (p - 1));
                is(chunks, [&](int64_t s) { return std::min(v * m, 2 * (p - s - 1) + (v - 1) * p + 1); });
            }
            CHECK(good);
        }
}

}  // namespace

TEST_CASE("schedules: bubbles and activation peaks equal the closed forms, up to eight micro-batches a rank",
          "[slow]") {
    check_closed_forms([](int64_t p) {
        std::vector<int64_t> all;
        for (int64_t m = p; m <= 8 * p; m += test::few_cases() ? 7 : 1) all.push_back(m);
        return all;
    });
}

TEST_CASE("schedules: all of the library are complete, also with few micro-batches") {
    Library library;
    for (int64_t p = 2; p <= 6; ++p)
        for (int64_t m = 1; m <= 7; ++m)
            for (const auto& [name, v] :
                 {std::pair<const char*, int>{"gpipe", 1}, {"1f1b", 1}, {"zb_h1", 1}, {"zbv", 2}, {"interleaved", 2}}) {
                if (std::string(name) == "interleaved" && m % p != 0) continue;
                INFO(name << " p = " << p << " m = " << m);
                CHECK_NOTHROW(check_schedule(library.make(name, p, m, v), m, static_cast<int>(p) * v, true));
            }
}

TEST_CASE("schedules: a user's own is found beside the script, and blamed by its line") {
    const std::filesystem::path folder = in_build("lua_schedules");
    std::filesystem::create_directories(folder);
    const auto write = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder / (name + ".lua")) << text;
    };
    FakeHost host;
    const auto make = [&](const std::string& name) {
        return load_schedule({"pp", name, 1, {"pipeline", "gpt.lua", 7, 0}}, 2, 2, folder, host);
    };
    write("mine", "-- all forward\nreturn function(p, m)\n  return { 'F0 F1 B0 B1', { 'F0', 'F1', 'B1 B0' } }\nend\n");
    const Schedule mine = make("mine");
    CHECK(mine.ranks[1].text() == "F0 F1 B1 B0");
    CHECK(mine.origin.line == 2);
    has(mine.origin.text(), "mine.lua:2");
    const auto why = [&](const std::string& name) {
        try {
            make(name);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    has(why("nowhere"), "gpt.lua:7");
    has(why("nowhere"), "nowhere.lua next to the script");
    write("short", "return function(p, m) return { 'F0 B0' } end");
    has(why("short"), "short.lua:1");
    has(why("short"), "returned 1 order, expected a list of 2");
    write("letters", "\n\nreturn function(p, m) return { 'F0 B0', 'F0 X0' } end");
    has(why("letters"), "letters.lua:3");
    has(why("letters"), "'X0' is no fragment");
    write("number", "return 7");
    has(why("number"), "number.lua: returns the number 7, expected a function");
    // Each names the schedule once, and where.
    write("nothing", "return function() end");
    CHECK(why("nothing").starts_with("schedule nothing, " + (folder / "nothing.lua").string() + ":1: returned nil, "));
    write("typo", "\nretrun 1");
    CHECK(why("typo") == "schedule typo: " + (folder / "typo.lua").string() + ":2: syntax error near '1'");
    write("none", "local x = 1");
    has(why("none"), "none.lua returned nothing");
    write("fails", "return function(p)\n  error('not for ' .. p)\nend");
    CHECK(
        why("fails").starts_with("schedule fails: " + (folder / "fails.lua").string() + ":2: not for 2\n  pipeline, "));
    has(why("fails"), "gpt.lua:7: requested: 2 ranks over pp, 2 micro-batches, 1 chunk a rank");
    write("declares", "return { chunks = 2 }");
    has(why("declares"), "declares.lua: returns a table whose order is nil");
}

namespace {
/// A strategy that asks for chunks as strategy/pipeline does, and marks nothing.
struct Pipelined final : Strategy {
    Pipeline& asked;

    explicit Pipelined(Pipeline& asked) : asked(asked) {}
    void annotate(Program&, const Mesh&) override {}
    Pipeline* pipeline() override { return &asked; }
};
}  // namespace

TEST_CASE("schedules: one that needs two stages a rank gets them where nobody says a number") {
    const auto chunks = [](const std::string& options, const std::string& mesh = "pp = 2\n") {
        FakeHost host(
            "[train]\nsteps = 2\nsequences_per_step = 4\nmicrobatches = 2\n[data]\npath = \"x\"\n"
            "tokens_per_sequence = 4\n[mesh]\n" +
            mesh);
        Pipeline given;
        host.strategies = [&](std::string_view, Config& config, const Origin& origin) {
            given = {config.text("axis", "pp"), config.text("schedule", "1f1b"),
                     static_cast<int>(config.integer("chunks", 0)), origin};
            return std::make_unique<Pipelined>(given);
        };
        const std::string start =
            "local o = require 'orrery'\n"
            "local m = require 'orrery.models.gpt' { layers = 4, embed = 6, heads = 2, vocab = 11, seq = 4 }\n"
            "local p = o.trace('m', o.data.text {}.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
            "p:train_with(o.optim.adamw {})\no.strategy.pipeline { " +
            options +
            " }\np:parallel { require 'orrery.strategy'.define('mine', function(program) program:pipeline { " +
            options + " } end) {} }\n";
        run_script_text(start + "p:compile()", "a.lua", ".", host);
        const int marked = host.experiment->train().pipeline().chunks;
        if (mesh == "pp = 2\n") CHECK(marked == given.chunks);
        return given.chunks;
    };
    CHECK(chunks("schedule = 'zbv'") == 2);
    CHECK(chunks("schedule = 'zbv', chunks = 0") == 2);
    CHECK(chunks("schedule = '1f1b'") == 1);
    CHECK(chunks("") == 1);
    CHECK(chunks("schedule = 'interleaved', chunks = 2") == 2);
    CHECK(chunks("schedule = 'interleaved'") == 2);
    CHECK(chunks("schedule = 'interleaved', chunks = 0") == 2);
    CHECK(chunks("schedule = 'zbv'", "dp = 1\n") == 1);
    CHECK_THROWS_WITH(chunks("schedule = 'zbv', chunks = 1"),
                      Catch::Contains("zbv.lua:") && Catch::Contains("this schedule needs exactly 2 chunks a rank") &&
                          Catch::Contains("a.lua:6: requested: 2 ranks over pp, 2 micro-batches, 1 chunk a rank"));
    CHECK_THROWS_WITH(chunks("schedule = 'interleaved', chunks = 1"),
                      Catch::Contains("interleaved.lua:") && Catch::Contains("needs at least 2 chunks a rank") &&
                          Catch::Contains("a.lua:6: requested: 2 ranks over pp, 2 micro-batches, 1 chunk a rank"));
    FakeHost host;
    int found = 0;
    CHECK(load_schedule({"pp", "zbv", 0, {}}, 2, 2, {}, host, &found).stages.size() == 2);
    CHECK(found == 2);
}
