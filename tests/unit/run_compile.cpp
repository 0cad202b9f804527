#include <catch2/catch.hpp>

#include "compile/compile.h"
#include "ir/build.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// A model of tokens [2, 4] on a mesh, with strategies, as compile() leaves it.
std::unique_ptr<Experiment> made(const std::string& mesh, const std::string& strategies,
                                 const std::vector<std::string>& sets = {}) {
    FakeHost host(
        "[train]\nsteps = 10\nsequences_per_step = 4\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n[mesh]\n" + mesh,
        sets);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\nlocal strategy = require 'orrery.strategy'\n"
        "local m = require 'orrery.models.gpt' { layers = 2, embed = 6, heads = 2, vocab = 11, seq = 4 }\n"
        "local p = o.trace('m', o.data.text {}.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "p:train_with(o.optim.adamw {})\np:parallel { " +
            strategies + " }\np:compile()",
        "a.lua", ".", host);
    return std::move(host.experiment);
}

void judge(const Experiment& experiment) {
    Config mesh("mesh", {"", "a.toml", 8, 0});
    refuse_idle_axes(experiment, mesh);
}

const std::string data = "o.strategy.data { axis = 'dp' }";
/// Marks nothing on any axis.
const std::string named = "strategy.define('none', { axis = 'tp' }, function() end) {}";

}  // namespace

TEST_CASE("an axis of the mesh that splits nothing is an error") {
    CHECK_THROWS_WITH(judge(*made("dq = 2\n", data)), Contains("a.toml:8") && Contains("mesh.dq = 2 splits nothing") &&
                                                          Contains("did you mean \"dp\""));
    CHECK_THROWS_WITH(judge(*made("dp = 2\ntp = 2\n", data)), Contains("mesh.tp = 2 splits nothing"));
    CHECK_THROWS_WITH(judge(*made("dp = 2\n", "")), Contains("mesh.dp = 2 splits nothing"));
    CHECK_NOTHROW(judge(*made("dp = 2\n", data)));
    CHECK_NOTHROW(judge(*made("dp = 2\ntp = 1\n", data)));                 // an axis of size 1 may idle
    CHECK_NOTHROW(judge(*made("dp = 2\ntp = 2\n", data + ", " + named)));  // a strategy is for it
    auto micro = made("dp = 2\n", data);
    micro->mesh = micro->mesh.with_microbatches(2);
    CHECK_NOTHROW(judge(*micro));
    auto staged = made("pp = 2\n", "");
    staged->train().pipeline({"pp", "1f1b", 1, {}});
    CHECK_NOTHROW(judge(*staged));
}

TEST_CASE("the vocabulary of a program is that of its tables and logits") {
    CHECK(vocabulary_of(made("", data)->train()) == 11);
    Program program;
    Builder build(program);
    const ValueId tokens = build.input("tokens", {DType::i32, {2, 4}}, {"batch", "seq"}, {});
    const ValueId flat = build.one("reshape", {tokens}, {{"shape", Shape{8}}}, {});
    const ValueId table = build.param("table", {DType::f32, {30, 6}}, {"vocab", "embed"}, {}, {});
    CHECK(vocabulary_of(program) == 0);
    build.one("embedding", {flat, table}, {}, {});
    CHECK(vocabulary_of(program) == 30);
    for (const char* name : {"documents", "positions", "places"}) {  // numbers of a row, no words
        const ValueId numbers = build.input(name, {DType::i32, {2, 4}}, {"batch", "seq"}, {});
        build.one(
            "embedding",
            {numbers, build.param(std::string(name) + ".table", {DType::f32, {5, 6}}, {"places", "embed"}, {}, {})}, {},
            {});
        CHECK(vocabulary_of(program) == 30);
    }
}

TEST_CASE("ids of an input are those of all that they look up, and -1 where that is none to each") {
    Program program;
    Builder build(program);
    const auto ids = [&](const char* name, Shape shape) { return build.input(name, {DType::i32, shape}, {}, {}); };
    const ValueId x = build.input("x", {DType::f32, {8, 6}}, {}, {});
    const ValueId labels = ids("labels", {8}), picks = ids("picks", {8, 4}), to = ids("to", {8, 6}),
                  both = ids("both", {8});
    build.one("one_hot", {labels}, {{"size", int64_t{10}}}, {});
    build.one("gather", {x, picks}, {{"dim", int64_t{1}}}, {});
    build.one("scatter_add", {x, to}, {{"dim", int64_t{0}}, {"size", int64_t{40}}}, {});
    build.one("one_hot", {both}, {{"size", int64_t{9}}}, {});
    build.one("embedding", {both, x}, {}, {});
    const Attributes experts{{"experts", int64_t{3}}, {"slots", int64_t{5}}};
    build.add("assign_slots", {ids("chosen", {8, 2})}, experts, {});
    build.one("dispatch", {x, ids("slots", {8, 2})}, experts, {});
    const auto ranges = ids_of(program);
    const auto is = [&](const char* name, int64_t least, int64_t count) {
        return ranges.at(name).least == least && ranges.at(name).count == count;
    };
    CHECK(is("labels", -1, 10));
    CHECK(is("picks", -1, 6));
    CHECK(is("to", -1, 40));
    CHECK(is("both", 0, 8));
    CHECK(is("chosen", -1, 3));
    CHECK(is("slots", -1, 15));
}

TEST_CASE("an array that evaluation reads first on another pipeline stage than training is refused") {
    const auto compiled = [](const std::string& when) {
        FakeHost host("[train]\nsteps = 10\nsequences_per_step = 4\n[mesh]\npp = 2\n");
        host.strategies = built_strategy;
        run_script_text(
            "local o = require 'orrery'\nlocal nn = o.nn\n"
            "local x = { x = o.array('f32', { {'batch', 4}, {'embed', 6} }) }\n"
            "local p = o.trace('m', x, function(b)\n"
            "  local mean, x = o.state { name = 'mean', shape = { {'embed', 6} } }, b.x\n"
            "  for i = 0, 1 do nn.scope('layers.' .. i, function()\n"
            "    x = nn.mlp(x, { mlp = 4 })\n"
            "    if " +
                when +
                " then x = x + mean end\n"
                "  end) end\n"
                "  mean:next(mean * 2)\n"
                "  return (x * x):sum(), o.constant(4)\nend)\n"
                "p:train_with(o.optim.adamw {})\np:parallel { o.strategy.pipeline { axis = 'pp' } }\np:compile()",
            "a.lua", ".", host);
        return compile_training(*host.experiment, {});
    };
    CHECK_NOTHROW(compiled("i == 1"));
    CHECK_NOTHROW(compiled("o.training()"));
    CHECK_THROWS_WITH(compiled("i == 1 or o.training()"),
                      Contains("the program eval reads mean first on pipeline rank 1, the train step on another one"));
}

TEST_CASE("a ramp that changes a pipeline's micro-batches is refused at the pipeline's line") {
    const std::string pipeline = "o.strategy.pipeline { axis = 'pp', schedule = 'zb_h1' }";
    std::vector<std::string> ramp{"train.ramp_start=2", "train.ramp_increment=2", "train.ramp_samples=8",
                                  "train.microbatches=2"};
    CompileOptions options;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    CHECK_THROWS_WITH(compile_training(*made("pp = 2\n", pipeline, ramp), options),
                      Contains("a.lua:") && Contains("schedule zb_h1 is made for the 2 micro-batches of a step of 4") &&
                          Contains("steps of 2 sequences with 1 micro-batches") && Contains("train.microbatches = 1"));
    ramp.back() = "train.microbatches=1";  // the remedy
    CHECK(compile_training(*made("pp = 2\n", pipeline, ramp), options).programs.size() == 3);
    // The strategy says the number as well.
    const std::string says = "o.strategy.pipeline { axis = 'pp', schedule = 'zb_h1', microbatches = 4 }";
    ramp = {"train.sequences_per_step=12", "train.ramp_start=3", "train.ramp_increment=3", "train.ramp_samples=80",
            "train.microbatches=4"};
    CHECK_THROWS_WITH(compile_training(*made("pp = 2\n", says, ramp), options),
                      Contains("a.lua:") && Contains("is made for the 4 micro-batches of a step of 12") &&
                          Contains("steps of 3 sequences with 1 micro-batches"));
    ramp.back() = "train.microbatches=1";
    CHECK(compile_training(*made("pp = 2\n",
                                 "o.strategy.pipeline { axis = 'pp', schedule = 'zb_h1', microbatches = "
                                 "3 }",
                                 ramp),
                           options)
              .programs.size() == 5);
}

TEST_CASE("any number of samples is evaluated by calls that take each one once") {
    const ProgramEntry full{"eval", ProgramRole::evaluate, 24, false, -1};
    for (const int64_t microbatches : {1, 2, 4})
        for (const int64_t ways : {1, 2, 3, 6})
            for (int64_t samples = 0; samples < 80; ++samples) {
                INFO(microbatches << " " << ways << " " << samples);
                int64_t taken = 0;
                for (const Calls& calls : calls_for(full, samples, microbatches, ways)) {
                    CHECK(calls.of == "eval");
                    CHECK(calls.times > 0);
                    CHECK((calls.entry.whole || calls.entry.batch % ways == 0));
                    CHECK((calls.entry.batch == 24 || calls.entry.batch <= 24 / microbatches));
                    // No rank computes more at once than its own part of a full call.
                    CHECK((!calls.entry.whole || calls.entry.batch <= std::max<int64_t>(1, 24 / microbatches / ways)));
                    CHECK((calls.entry == full || calls.entry.name == "eval of " + std::to_string(calls.entry.batch)));
                    taken += calls.times * calls.entry.batch;
                }
                CHECK(taken == samples);
            }
}
