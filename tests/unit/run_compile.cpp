#include <catch2/catch.hpp>

#include "ir/build.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/compile.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// A model of tokens [2, 4] on a mesh, with strategies, as compile() leaves it.
std::unique_ptr<Experiment> made(const std::string& mesh, const std::string& strategies) {
    FakeHost host(
        "[train]\nsteps = 10\nsequences_per_step = 4\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n[mesh]\n" + mesh);
    run_script_text(
        "local o = require 'orrery'\nlocal strategy = require 'orrery.strategy'\n"
        "local m = require 'orrery.models.gpt' { layers = 1, embed = 6, heads = 2, vocab = 11, seq = 4 }\n"
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

const std::string data = "o.strategies.data { axis = 'dp' }";
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
    staged->train.pipeline({"pp", "1f1b", 1, {}});
    CHECK_NOTHROW(judge(*staged));
}

TEST_CASE("the vocabulary of a program is that of its tables and logits") {
    CHECK(vocabulary_of(made("", data)->train) == 11);
    Program program;
    Builder build(program);
    const ValueId tokens = build.input("tokens", {DType::i32, {2, 4}}, {"batch", "seq"}, {});
    const ValueId flat = build.one("reshape", {tokens}, {{"shape", Shape{8}}}, {});
    const ValueId table = build.param("table", {DType::f32, {30, 6}}, {"vocab", "embed"}, {}, {});
    CHECK(vocabulary_of(program) == 0);
    build.one("embedding", {flat, table}, {}, {});
    CHECK(vocabulary_of(program) == 30);
}
