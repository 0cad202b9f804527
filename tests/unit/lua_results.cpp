// o.result: numbers that a model declares beside its loss.
#include <catch2/catch.hpp>

#include "compile/compile.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "run/metrics/recorded_results.h"

using namespace orrery;

namespace {

const std::string sizes = "[train]\nsteps = 4\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n";

/// A program whose forward function has `inside` before its end, and whose optimizer has `update`.
std::unique_ptr<Experiment> traced(const std::string& inside, const std::string& update = "",
                                   const std::string& later = "", const std::string& toml = sizes) {
    FakeHost host(toml);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 12}, {'embed', 3} }) }, function(batch)\n"
        "  local w = o.param { name = 'w', shape = { {'embed', 3} }, init = { kind = 'ones' } }\n"
        "  local y = batch.x * w\n" +
            inside +
            "\n  return (y * y):sum(), o.constant(4)\nend)\n"
            "local sgd = o.optim.sgd { lr = 0.1 }\n"
            "p:train_with(function(u) sgd(u)\n" +
            update + "\nend)\n" + later + "\np:compile()",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

std::string refused(const std::string& inside, const std::string& update = "", const std::string& later = "") {
    try {
        const auto made = traced(inside, update, later);
        recorded_results(made->train());
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing is refused";
}

}  // namespace

TEST_CASE("o.result declares a sum and its count in training and in evaluation, not in a metric or in logits") {
    const auto made = traced("o.result('size', (y * y):sum(), 7) o.result('mean', y:sum(), y:sum())", "",
                             "p:metric('m', function(b) o.result('other', b.x:sum(), 1) return b.x:sum() end)");
    const auto results = recorded_results(made->train());
    REQUIRE(results.size() == 2);
    CHECK(results[0].name == "size");
    REQUIRE(results[0].parts);
    CHECK(results[0].parts->sum == "size.sum");
    CHECK(results[0].parts->count == "size.count");
    CHECK(results[0].why_not.empty());
    CHECK(results[1].name == "mean");
    CHECK(quotients(made->find("eval")->program).size() == 2);
    CHECK(quotients(made->find("m")->program).empty());
    for (const ResultDecl& result : declared_results(made->train()))
        if (result.name.starts_with("size.")) CHECK(result.adds_up);
}

TEST_CASE("o.result without a count declares a value of the whole step, only in training") {
    const auto made = traced("o.result('load', y:sum('batch')) o.result('largest', y:sum('batch'):max())");
    const auto results = recorded_results(made->train());
    REQUIRE(results.size() == 2);
    CHECK(results[0].name == "load");
    CHECK(results[0].value == "load.step");
    CHECK(results[0].shown);
    CHECK(results[0].why_not.empty());
    for (const ResultDecl& result : declared_results(made->train()))
        if (result.name.ends_with(".step")) CHECK_FALSE(result.adds_up);
    for (const ResultDecl& result : declared_results(made->find("eval")->program)) CHECK(result.adds_up);
}

TEST_CASE("in half precision, results are still told as f32") {
    const auto low = traced("o.result('low', y:sum(), y:max())", "", "",
                            "[train]\nsteps = 4\nsequences_per_step = 12\nprecision = \"bf16\"\n"
                            "[data]\ntokens_per_sequence = 4\nvocab = 5\n");
    for (const char* name : {"low.sum", "low.count", "loss_sum"}) {
        INFO(name);
        CHECK(low->train().value(*low->train().result(name)).type == TensorType{DType::f32, {}});
    }
}

TEST_CASE("what o.result cannot take is refused with the line of the script") {
    const std::string twice = refused("o.result('a', y:sum(), 1)\n  o.result('a', y:sum(), 1)");
    CHECK(has(twice, "a.lua:6"));
    CHECK(has(twice, "duplicate result \"a\""));
    const std::string shape = refused("o.result('a', y, 1)");
    CHECK(has(shape, "a.lua:5"));
    CHECK(has(shape, "is not an f32 scalar of this program"));
    CHECK(has(refused("o.result('a', y)"), "is not an f32 scalar or list"));
    CHECK(has(refused("o.result('a', y:sum()) o.result('a', y:sum(), 1)"), "duplicate result \"a\""));
    CHECK(has(refused("o.result('a', y:sum(), 1) o.result('a', y:sum())"), "duplicate result \"a\""));
    CHECK(has(refused("", "u:result('a.step', o.constant(1))"), "would be read as one of o.result without a count"));
    CHECK(has(refused("o.result('a b', y:sum(), 1)"), "of a result: only letters, digits"));
    CHECK(has(refused("o.result('', y:sum(), 1)"), "of a result"));
    CHECK(has(refused("o.result('a', y:sum(), 'x')"), "a.lua:5"));
    CHECK(has(refused("o.result('a', 1, 1)"), "a.lua:5"));
    CHECK(has(refused("", "o.result('a', o.constant(1), 1)"), "update:result(name, value)"));
    CHECK(has(refused("", "", "o.result('a', 1, 1)"), "o.result: can only be called inside"));
    CHECK(has(refused("o.result('time', y:sum(), 1)"), "result time has the name of a built-in key of metrics.jsonl"));
    CHECK(has(refused("o.result('lr', y:sum(), 1)"), "result lr has the name of a built-in key of metrics.jsonl"));
    CHECK(has(refused("o.result('a', y:sum(), 1)", "u:result('a', o.constant(1))"), "two results are named a"));
    CHECK(has(refused("", "u:result('a.sum', o.constant(1)) u:result('a.count', o.constant(1))"),
              "would be read as a sum and its count"));
    CHECK(
        has(refused("o.result('a', y:sum(), 1)", "", "p:metric('eval_a', function(b) return b.x:sum(), b.x:sum() end)"),
            "evaluations report the result \"a\" under the name \"eval_a\""));
}
