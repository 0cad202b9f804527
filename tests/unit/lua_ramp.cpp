// A batch that grows: each step of the ramp is the very program that a script with that batch gives.
#include <algorithm>
#include <catch2/catch.hpp>

#include "folders.h"
#include "ir/print.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

std::string script(const std::string& options = "") {
    return "local o = require 'orrery'\nlocal data = o.data.text {}\n"
           "local m = require 'orrery.models.gpt' { layers = 1, embed = 8, heads = 2, vocab = 5, seq = 4, dropout = "
           "0.1 }\n"
           "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
           "p:train_with(o.optim.adamw { lr = 1e-2, clip = 1 }" +
           options + ")\np:parallel { o.strategies.data { axis = 'dp' } }\nlocal run = p:compile()\nrun:train(data)";
}

const std::string toml =
    "[mesh]\ndp = 2\n[train]\nsteps = 9\n[data]\npath = \"x\"\ntokens_per_sequence = 4\nvocab = 5\n";

Experiment traced(const std::string& text, const std::vector<std::string>& sets) {
    FakeHost host(toml, sets);
    run_script_text(text, "a.lua", in_source("scripts"), host);
    return std::move(*host.experiment);
}

std::string message(const std::string& text, const std::vector<std::string>& sets) {
    try {
        traced(text, sets);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

std::string shown(const Program& program) { return print(program); }

const Program& smaller(const Experiment& experiment, int64_t batch) {
    const MarkedProgram* step = experiment.find("train of " + std::to_string(batch));
    REQUIRE(step);
    return step->program;
}

int64_t steps(const Experiment& experiment) {
    return std::count_if(experiment.programs.begin(), experiment.programs.end(),
                         [](const MarkedProgram& made) { return made.entry.role == ProgramRole::train; });
}

}  // namespace

TEST_CASE("a ramp's steps are the programs of scripts with those batches") {
    const std::vector<std::string> ramp = {"train.sequences_per_step=12", "train.microbatches=3", "train.ramp_start=4",
                                           "train.ramp_increment=4", "train.ramp_samples=40"};
    const Experiment whole = traced(script(), ramp);
    CHECK(whole.recipe->ramp == BatchRamp{4, 4, 40});
    REQUIRE(steps(whole) == 3);
    const auto alone = [](int batch, int micro) {
        return traced(script(), {"train.sequences_per_step=" + std::to_string(batch),
                                 "train.microbatches=" + std::to_string(micro)});
    };
    CHECK(shown(smaller(whole, 4)) == shown(alone(4, 1).train()));
    CHECK(shown(smaller(whole, 8)) == shown(alone(8, 2).train()));
    CHECK(shown(whole.train()) == shown(alone(12, 3).train()));
    CHECK(smaller(whole, 4).microbatches() == 1);
    CHECK(smaller(whole, 8).microbatches() == 2);
    const Experiment from_lua = traced(script(", { ramp = { start = 4, increment = 4, samples = 40 } }"),
                                       {"train.sequences_per_step=12", "train.microbatches=3"});
    CHECK(from_lua.recipe->ramp == whole.recipe->ramp);
    CHECK(shown(smaller(from_lua, 8)) == shown(smaller(whole, 8)));
}

TEST_CASE("a ramp's steps share the loss scale of f16") {
    const Experiment whole =
        traced(script(), {"train.sequences_per_step=8", "train.precision=f16", "train.ramp_start=4",
                          "train.ramp_increment=4", "train.ramp_samples=40"});
    REQUIRE(steps(whole) == 2);
    const Program& step = smaller(whole, 4);
    for (const char* state : {"loss_scale", "loss_scale.good", "loss_scale.steps"}) {
        INFO(state);
        REQUIRE(step.find(state));
        CHECK(step.value(*step.find(state)).role == Role::state);
    }
    const Experiment alone = traced(script(), {"train.sequences_per_step=4", "train.precision=f16"});
    CHECK(shown(step) == shown(alone.train()));
}

TEST_CASE("a ramp that cannot be is refused, with place and remedy") {
    const std::string full = "train.sequences_per_step=12";
    CHECK(has(message(script(), {full, "train.ramp_start=4"}), "train.ramp_increment is missing"));
    CHECK(has(message(script(), {full, "train.ramp_start=4", "train.ramp_increment=3", "train.ramp_samples=40"}),
              "does not reach the full batch of 12"));
    CHECK(has(message(script(), {full, "train.microbatches=3", "train.ramp_start=2", "train.ramp_increment=2",
                                 "train.ramp_samples=40"}),
              "batch of 2 sequences is not divisible into micro-batches"));
    CHECK(has(message(script(", { ramp = { start = 4, samples = 40 } }"), {full}), "ramp: increment is nil"));
    CHECK(has(message(script(", { ramp = { start = 4, increment = 4, sampels = 40 } }"), {full}), "samples"));
}
