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

/// The script with `old` in it replaced.
std::string replaced(const std::string& old, const std::string& by) {
    std::string text = script();
    return text.replace(text.find(old), old.size(), by);
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

TEST_CASE("lists that differ give a step for each of their numbers, and each call the next of its own list") {
    std::string text = script("(layer == 1 and { 1, 1.5, 3 } or { 1.25, 2 })");
    const std::string limit = "function(c) return 4 * c end";
    text.replace(text.find(limit), limit.size(), limit + ", layer == 1 and { 1, 1.5, 3 } or { 1.25, 2 }");
    const Experiment made = traced(text);
    CHECK(made.recipe->capacities == std::vector<double>{1, 1.25, 1.5, 2, 3});
    // Own sizes and limits of layer 1, then of layer 2; limits of this capacity and of the next smaller one.
    const auto numbers = [&](const std::string& name) {
        const MarkedProgram* program = made.find(name);
        REQUIRE(program);
        std::vector<double> all;
        for (const Op& op : program->program.ops) {
            if (op.phase != Phase::forward) continue;
            if (op.kind == "scale" && op.scope.empty()) all.push_back(op.attributes.number("by"));
            if (op.kind == "full" && op.scope.starts_with("layer") && op.attributes.number("value") > 0)
                all.push_back(op.attributes.number("value"));
        }
        return all;
    };
    CHECK(numbers("train at 1") == std::vector<double>{4, 1, 5, 1.25});
    CHECK(numbers("train at 1.25") == std::vector<double>{6, 4, 1.5, 5, 1.25});
    CHECK(numbers("train at 1.5") == std::vector<double>{6, 1.5, 8, 5, 2});
    CHECK(numbers("train at 2") == std::vector<double>{12, 6, 3, 8, 2});
    CHECK(numbers("train") == std::vector<double>{12, 3, 8, 2});
    CHECK(has(message(script("(layer == 1 and { 1, 1.5, 3 } or { 1.25, 2 })")),
              "o.overflow: there are several lists of capacities, { 1, 1.5, 3 } and { 1.25, 2 }\n  give the one"));
    std::string one = text;
    one.replace(one.find("o.overflow("), 11, "; (layer == 1 and o.overflow or type)(");
    CHECK(has(message(one), "o.capacity { 1.25, 2 } without o.overflow"));
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
    const std::string unguarded = "function(u) u:loss_scale() for p in u:params() do u:set(p, p - p:grad()) end end";
    CHECK(has(message(script("{ 1, 2 }", unguarded)), "read update:overflow(), and set nothing where it is above 0"));
}

TEST_CASE("lists of capacities that cannot be") {
    CHECK(has(message(script("{ 2, 1 }")), "entry 2 is 1, expected a number above 2"));
    CHECK(has(message(script("{}")), "the list is empty"));
    CHECK(has(message(script("{ 1, 'x' }")), "entry 2 is the text \"x\", expected a number above 1"));
    CHECK(has(message(script("{ 1, 2, largest = 3 }")), "the list has other entries than those from 1 to 2"));
    CHECK(has(message(script("{ 1, 2, nil, 3 }")), "the list has other entries than those from 1 to 2"));
    CHECK(has(message(script("{ 1, 1.0000001, 4 }")), "entries 1 and 2 are both printed as 1"));
    CHECK(has(message(script("(layer == 1 and { 1, 2 } or { 1, 2.0000001 })")),
              "two capacities are too close: both print as 2"));
    const std::string later = "((function() n = (n or 0) + 1 return { 1, 1.5, n > 4 and 4 or 3 } end)())";
    CHECK(has(message(script(later)), "the list { 1, 1.5, 4 } is not one of the first trace, { 1, 1.5, 3 }"));
    CHECK(has(message(replaced("size = o.capacity", "size = 1; local _ =")),
              "o.overflow: the program has no capacity; call o.capacity first"));
    CHECK(
        has(message(replaced("if o.training() then", "if true then")), "o.overflow: only a train step can run again"));
    CHECK(has(message(replaced("4 * c end", "4 / c end")),
              "limit(1.5) = 2.66667 is more than limit(3) = 1.33333: a larger capacity holds no less"));
    CHECK(
        has(message(replaced("4 * c end", "-c end")), "limit(3) is the number -3.0, expected a number of at least 0"));
}

TEST_CASE("capacities that no step could overflow are refused at the line of o.capacity") {
    const std::string text = message(replaced("o.overflow(", "type("));
    CHECK(has(text, "a.lua:7: o.capacity { 1, 1.5, 3 } without o.overflow"));
    CHECK(has(text, "call o.overflow(load, limit, list) in each trace"));
}

TEST_CASE("each load has a name with the scope that declares it") {
    const std::string again =
        "local f = load:cast('f32'):named('f' .. layer) o.overflow(load, math.abs)"
        " o.overflow(f, math.abs) o.overflow(f, math.abs) o.overflow(load";
    const Program scoped = traced(replaced("o.overflow(load", again)).train();
    for (const std::string name :
         {"layer1.load", "layer1.load4", "layer2.load", "layer2.load4", "layer2.load4.above", "f1", "f2"}) {
        INFO(name);
        CHECK(scoped.find(name));
    }
    const Program outside = traced(replaced("o.scope('layer' .. layer, function()", "pcall(function()")).train();
    CHECK(outside.find("load"));
    CHECK(outside.find("load2"));
    CHECK(load_name("layer1.moe", 12) == "layer1.moe.load12");
    CHECK(load_scope("layer1.moe.load12") == "layer1.moe");
    CHECK(load_scope("layer1.load") == "layer1");
    CHECK(load_scope("load2") == "");
    CHECK(load_scope("layer1.load2.above") == "layer1");
    CHECK(!load_scope("layer1.upload"));
    CHECK(!load_scope("layer1.load.grad"));
    CHECK(!load_scope("12"));
}

TEST_CASE("a value of the script is not taken for a load of o.overflow") {
    const std::string named =
        "local _ = b.tokens:one_hot(5):sum { dims = { 2 } }:cast('f32'):named('my' .. layer .. '.load') o.overflow(";
    const std::string text = message(replaced("o.overflow(", named));
    CHECK(has(text, "a.lua:9"));
    CHECK(has(text, ".load f32[batch=4,"));
    CHECK(has(text, "is named as the loads of o.overflow are; give it another name"));
    const std::string optimizer = "function(u) u:count():named 'load' for p in u:params() do u:set(p, p) end end";
    CHECK(has(message(script("{ 1, 2 }", optimizer)), "is named as the loads of o.overflow are"));
}

TEST_CASE("an optimizer cannot give the results of o.overflow") {
    for (const std::string name : {"run.overflow", "run.overflow_below"})
        CHECK(has(message(script("{ 1, 2 }", "function(u) u:result('" + name + "', u:count()) end")),
                  "is reserved for o.overflow; give it another name"));
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
