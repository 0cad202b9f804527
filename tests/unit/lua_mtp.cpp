// Multi-token prediction of models/llama.lua: which tokens it predicts, and of which sum its loss is a part.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "folders.h"
#include "interpreter.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

using Rows = std::map<std::string, std::vector<int32_t>>;  // inputs of one sequence

/// A tiny Llama that predicts a token more, over one sequence, on so many stages.
std::unique_ptr<Experiment> made(const Rows& rows, int layers = 1, int stages = 1) {
    FakeHost host("[train]\nsteps = 100\n[mesh]\npp = " + std::to_string(stages) + "\n");
    host.strategies = built_strategy;
    const std::string packed = rows.contains("documents") ? "b" : "nil";
    std::string inputs;
    for (const auto& [name, ids] : rows)
        inputs += name + " = o.array('i32', { {'batch', 1}, {'seq', " + std::to_string(ids.size()) + "} }), ";
    run_script_text(
        "local o = require 'orrery'\n"
        "local model = require 'orrery.models.llama' {\n"
        "  layers = " +
            std::to_string(layers) +
            ", embed = 8, heads = 2, mlp = 12, vocab = 11, mtp_weight = 0.25 }\n"
            "local p = o.trace('t', { " +
            inputs + "}, function(b) return model:loss(b.tokens, b.targets, " + packed +
            ") end)\n"
            "p:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\n"
            "p:parallel { o.strategy.pipeline {} }\np:compile()\n",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

/// Its results by name. A param has the same elements in every program.
std::map<std::string, double> results(const Program& program, const Rows& rows) {
    const auto values = test::evaluate(program, [&](const Value& value, ValueId) {
        if (!rows.contains(value.name))
            return test::fill_small(value, std::accumulate(value.name.begin(), value.name.end(), ValueId{0}));
        test::Array ids(test::widened(value.type));
        std::ranges::copy(rows.at(value.name), ids.i32());
        return ids;
    });
    std::map<std::string, double> found;
    for (const Result& result : program.results)
        if (program.value(result.value).type.shape.empty())
            found[result.name] = values[static_cast<size_t>(result.value)].f64()[0];
    return found;
}

std::map<std::string, double> results(const Rows& rows) { return results(made(rows)->train(), rows); }

const Rows packed{{"tokens", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                  {"targets", {2, 3, 4, -1, 6, 7, -1, 9, 10}},
                  {"documents", {0, 0, 0, 0, 1, 1, 1, 2, 2}},
                  {"positions", {0, 1, 2, 3, 0, 1, 2, 0, 1}}};

}  // namespace

TEST_CASE("a row of documents has the multi-token prediction of its documents run one by one") {
    const auto row = results(packed);
    double sum = 0, count = 0;
    for (const Rows& alone :
         {Rows{{"tokens", {1, 2, 3, 4}}, {"targets", {2, 3, 4, -1}}},
          Rows{{"tokens", {5, 6, 7}}, {"targets", {6, 7, -1}}}, Rows{{"tokens", {8, 9}}, {"targets", {9, 10}}}}) {
        const auto one = results(alone);
        sum += one.at("mtp_loss.sum"), count += one.at("mtp_loss.count");
    }
    CHECK(count == 2 + 1 + 1);  // 3 4, 7, 10: all but the first two tokens of a document
    CHECK(row.at("mtp_loss.count") == count);
    CHECK(row.at("mtp_loss.sum") == Approx(sum).epsilon(1e-12));
}

TEST_CASE("the loss of multi-token prediction is a part of the sum of a train step alone") {
    const auto experiment = made(packed);
    const auto train = results(experiment->train(), packed);
    const Program& evaluation = experiment->find("eval")->program;
    const auto held_out = results(evaluation, packed);
    CHECK(held_out.size() == 2);
    CHECK(train.at("count") == 7);
    CHECK(held_out.at("count") == 7);
    CHECK(train.at("loss_sum") == Approx(held_out.at("loss_sum") + 0.25 * train.at("mtp_loss.sum")).epsilon(1e-12));
    CHECK(experiment->train().find("mtp.eh_proj.weight"));
    CHECK_FALSE(evaluation.find("mtp.eh_proj.weight"));
}

TEST_CASE("evaluation has layers on the stages of training, whose last stage does more") {
    const auto experiment = made(packed, 6, 2);
    const auto stages = [](const Program& program) {
        std::map<std::string, int> of;
        for (const ScopeMark& mark : program.scope_marks()) of[mark.scope] = mark.stage;
        return of;
    };
    const auto train = stages(experiment->train());
    CHECK(train.size() == 6);
    CHECK(train.at("layers.3") == 0);  // 4 and 2 layers: the module and its head count, too
    CHECK(train.at("layers.4") == 1);
    CHECK(stages(experiment->find("eval")->program) == train);
}
