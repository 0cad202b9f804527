// Capacities: a train step for each, and one whose overflow leaves params, states and the loss scale as they were.
#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/capacity.h"
#include "folders.h"
#include "ir/print.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// A model with `layers` ops of the given capacities, the load of each a sum of ids over the sequence.
std::string script(const std::string& list = "{ 1, 1.5, 3 }", const std::string& optimizer = "o.optim.adamw {}",
                   const std::string& options = "") {
    return "local o, nn = require 'orrery', require 'orrery.nn'\nlocal data = o.data.text {}\n"
           "local p = o.trace('g', data.signature, function(b)\n"
           "  local x = nn.embedding(b.tokens, 'tokens', { 'vocab', 5 }, { 'embed', 8 })\n"
           "  for layer = 1, 2 do\n"
           "    if o.training() then o.scope('layer' .. layer, function()\n"
           "      size = o.capacity " +
           list +
           "\n"
           "      local load = b.tokens:one_hot(5):sum { dims = { 2 } }\n"
           "      o.overflow(load, function(c) return 4 * c end)\n"
           "    end) end\n"
           "    x = x:scale(o.training() and size or 9)\n"
           "  end\n"
           "  return nn.linear(x, 'head', { 'vocab', 5 }):cross_entropy(b.targets)\nend)\n"
           "p:train_with(" +
           optimizer + options + ")\np:compile():train(data)";
}

const std::string toml =
    "[train]\nsteps = 9\nsequences_per_step = 4\n[data]\npath = \"x\"\ntokens_per_sequence = 4\n"
    "vocab = 5\n";

Experiment traced(const std::string& text, const std::vector<std::string>& sets = {}) {
    FakeHost host(toml, sets);
    run_script_text(text, "a.lua", in_source("scripts"), host);
    return std::move(*host.experiment);
}

std::string message(const std::string& text) {
    try {
        traced(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("a train step is made for each capacity, and evaluation has none") {
    const Experiment made = traced(script());
    CHECK(made.recipe->capacities == std::vector<double>{1, 1.5, 3});
    std::vector<std::string> names;
    for (const MarkedProgram& program : made.programs) names.push_back(program.entry.name);
    CHECK(names == std::vector<std::string>{"train", "train at 1", "train at 1.5", "eval", "logits"});
    CHECK(has(print(made.train()), "by=3.0"));
    CHECK(has(print(made.find("train at 1")->program), "by=1.0"));
    CHECK(has(print(made.find("train at 1.5")->program), "by=1.5"));
    CHECK(has(print(made.find("eval")->program), "by=9.0"));
    for (const std::string name : {"train", "train at 1", "train at 1.5"}) {
        const Program& program = made.find(name)->program;
        CHECK(program.result(overflow_name));
        CHECK(program.result(below_name));
        CHECK(program.find("layer1.load"));
        CHECK(program.find("layer2.load"));
    }
    CHECK(!made.find("eval")->program.result(overflow_name));
}

TEST_CASE("each batch of a ramp has every capacity") {
    const Experiment made = traced(script(), {"train.ramp_start=2", "train.ramp_increment=2", "train.ramp_samples=8"});
    std::vector<std::string> names;
    for (const MarkedProgram& program : made.programs)
        if (program.entry.role == ProgramRole::train) names.push_back(program.entry.name);
    CHECK(names == std::vector<std::string>{"train", "train of 2 at 1", "train of 2 at 1.5", "train of 2", "train at 1",
                                            "train at 1.5"});
}

TEST_CASE("every kind of optimizer leaves a step that overflows as it was") {
    const std::string own = "function(u) for p in u:params() do u:set(p, p - p:grad() * 0.1) end end";
    for (const std::string& optimizer : {std::string("o.optim.adamw {}"), std::string("o.optim.sgd {}"), own})
        for (const std::string options : {"", ", { loss_scale = true }"}) {
            const Program step = traced(script("{ 1, 2 }", optimizer, options)).train();
            // Each updated value depends on the overflow.
            std::vector<bool> depends(step.values.size(), false);
            depends[static_cast<size_t>(*step.result(overflow_name))] = true;
            for (const Op& op : step.ops) {
                const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                               [&](ValueId id) { return depends[static_cast<size_t>(id)]; });
                for (const ValueId output : op.outputs)
                    if (reads) depends[static_cast<size_t>(output)] = true;
            }
            for (const Update& update : step.updates) {
                INFO(optimizer << options << " " << step.value(update.target).name);
                CHECK(depends[static_cast<size_t>(update.value)]);
            }
        }
    has(message(script("{ 1, 2 }", "function(u) u:loss_scale() for p in u:params() do u:set(p, p - p:grad()) end end")),
        "read update:overflow(), and set nothing where it is above 0");
}

TEST_CASE("lists of capacities that cannot be") {
    has(message(script("{ 2, 1 }")), "entry 2 is 1, expected a number above 2");
    has(message(script("{}")), "the list is empty");
    has(message(script("{ 1, 'x' }")), "entry 2 is the text \"x\", expected a number above 1");
    has(message(script("(layer == 1 and { 1, 2 } or { 1, 3 })")),
        "the list { 1, 3 } differs from { 1, 2 } of an earlier call; all calls of a program have one list");
    std::string late = script();
    late.replace(late.find("size = o.capacity"), 17, "size = 1; local _ = ");
    has(message(late), "o.overflow: the program has no capacity; call o.capacity first");
    std::string always = script();
    always.replace(always.find("if o.training() then"), 20, "if true then");
    has(message(always), "o.overflow: only a train step can run again");
}

TEST_CASE("the choice of a capacity grows at once and falls after 50 steps that did not need it") {
    CapacityChoice choice({1, 1.5, 3});
    CHECK(choice.now() == 1);
    CHECK(choice.grow());
    CHECK(choice.grow());
    CHECK(!choice.grow());
    CHECK(choice.now() == 3);
    CHECK(choice.again() == 2);
    for (int i = 0; i < 49; ++i) choice.fitted(true);
    choice.fitted(false);
    for (int i = 0; i < 49; ++i) choice.fitted(true);
    CHECK(choice.now() == 3);
    CapacityChoice resumed({1, 1.5, 3});
    resumed.resume(choice.saved());
    for (CapacityChoice* one : {&choice, &resumed}) {
        one->fitted(true);
        CHECK(one->now() == 1.5);
        for (int i = 0; i < 120; ++i) one->fitted(true);
        CHECK(one->now() == 1);
        CHECK(one->again() == 2);
    }
    CapacityChoice other({1, 2, 4});
    other.resume({1.5, 7, 3});
    CHECK(other.now() == 2);
    CHECK(other.saved().unneeded == 0);
    other.resume({8, 7, 3});
    CHECK(other.now() == 4);
    CHECK(!CapacityChoice({}).any());
}
