// program:also and program:round: more programs over the arrays of a step, and the order in which they run.
#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/compile.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

const std::string sizes = "[train]\nsteps = 4\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n";
const std::string set = "for p in u:params() do u:set(p, p - p:grad()) end ";
const std::string trained = "p:train_with(o.optim.sgd { lr = 0.1 })\n";
/// Leaves gradients and their count in arrays, from which another program updates.
const std::string apart =
    "p:also('G', function(u)\n"
    "  local count = o.state { name = 'count', shape = {} }\n"
    "  local n = u:count()\n"
    "  for p in u:params() do u:set(u:state(p, 'gradient'), p:grad()) end\n"
    "  u:set(count, n)\n"
    "end)\n"
    "p:also('U', function(u)\n"
    "  for p in u:params() do u:gradient(p, u:state(p, 'gradient')) end\n"
    "  u:count(o.state { name = 'count', shape = {} })\n"
    "  o.optim.adamw { lr = 0.1 } (u)\n"
    "end)\np:round 'G U'\n";

std::unique_ptr<Experiment> traced(const std::string& calls, const std::string& toml = sizes,
                                   const std::string& strategies = "") {
    FakeHost host(toml);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 12}, {'embed', 4} }) }, function(batch)\n"
        "  local mean = o.state { name = 'mean', shape = { {'embed', 4} } }\n"
        "  local y = o.scope('a', function() return batch.x * o.param { name = 'w', shape = { {'embed', 4} } } end)\n"
        "  mean:next(y:sum 'batch')\n"
        "  y = o.scope('b', function() return y * o.param { name = 'w', shape = { {'embed', 4} } } end)\n"
        "  return (y * y - mean):sum(), o.constant(4)\nend)\n" +
            calls + strategies + "p:compile()",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

std::string refused(const std::string& calls, const std::string& toml = sizes) {
    try {
        traced(calls, toml);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing is refused";
}

std::vector<std::string> names(const std::vector<ValueId>& ids, const Program& program) {
    std::vector<std::string> all;
    for (const ValueId id : ids) all.push_back(program.value(id).name);
    std::ranges::sort(all);
    return all;
}

std::vector<std::string> updated(const Program& program) {
    std::vector<ValueId> targets;
    for (const Update& update : program.updates) targets.push_back(update.target);
    return names(targets, program);
}

}  // namespace

TEST_CASE("a program that reads gradients takes a batch, one that reads none is pruned to its updates") {
    const auto made = traced(apart);
    REQUIRE(made->programs.size() >= 3);
    const MarkedProgram& first = made->programs[0];
    const MarkedProgram& second = made->programs[1];
    CHECK(first.entry.name == "G");
    CHECK(first.entry.role == ProgramRole::train);
    CHECK(updated(first.program) == std::vector<std::string>{"a.w.gradient", "b.w.gradient", "count", "mean"});
    for (const char* name : {"a.w.m", "b.w.v", "mean"}) CHECK(first.program.find(name));  // all that a checkpoint has
    CHECK(second.entry.name == "U");
    CHECK(second.entry.role == ProgramRole::update);
    CHECK(updated(second.program) == std::vector<std::string>{"a.w", "a.w.m", "a.w.v", "b.w", "b.w.m", "b.w.v"});
    CHECK(names(second.program.inputs(), second.program) == std::vector<std::string>{"step"});
    CHECK_FALSE(second.program.find("mean"));
    CHECK_FALSE(second.program.result("loss_sum"));
    CHECK(second.program.result("grad_norm"));
    for (const Op& op : second.program.ops) CHECK(op.phase == Phase::update);
    CHECK(made->find("eval"));
}

TEST_CASE("programs of a round share arrays, layouts and one arena") {
    for (const char* stage : {"1", "2", "3"}) {
        const auto made = traced(apart, sizes + "[mesh]\ndp = 2\n",
                                 std::string("p:parallel { o.strategy.data { axis = 'dp', zero = ") + stage + " } }\n");
        const Compiled compiled = compile_training(*made, {});
        const CompiledProgram *first = compiled.find("G"), *second = compiled.find("U");
        REQUIRE(first);
        REQUIRE(second);
        for (const Value& value : second->plan.program.values) {
            if (value.role != Role::param && value.role != Role::state) continue;
            const ValueId same = first->plan.program.find(value.name).value();
            CHECK(first->plan.program.value(same).layout == value.layout);
        }
        const auto agreed = compiled.agreement();
        CHECK(std::ranges::any_of(agreed, [](const auto& part) { return part.first.starts_with("U: "); }));
    }
}

TEST_CASE("an array of a program without a forward pass is on the pipeline stage of its param") {
    const auto made = traced(apart, sizes + "[mesh]\npp = 2\n",
                             "p:parallel { require('orrery.strategy').define('cut', {}, function(program, mesh)\n"
                             "  program:stage('a', 0) program:stage('b', 1) program:pipeline { axis = 'pp', schedule = "
                             "'1f1b' } end) {} }\n");
    const Program& update = made->programs[1].program;
    CHECK(update.value(update.find("a.w").value()).stage == 0);
    CHECK(update.value(update.find("b.w.m").value()).stage == 1);
    CHECK(update.value(update.find("b.w.gradient").value()).stage == 1);
    CHECK(print(parse(print(update), "a.ir")) == print(update));
    const Compiled compiled = compile_training(*made, {});
    const Plan& plan = compiled.find("U")->plan;
    for (const Operand& place : plan.classes.at(0).places)
        CHECK(plan.program.value(place.value).name.substr(0, 2) != "b.");
}

TEST_CASE("a program that only copies params needs no stages of its own") {
    const std::string copies =
        "p:also('O', function(u) for p in u:params() do u:set(u:state(p, 'outer'), p) end end)\np:round 'step*2 O'\n";
    const auto made = traced(trained + copies, sizes + "[mesh]\npp = 2\n",
                             "p:parallel { require('orrery.strategy').define('cut', {}, function(program, mesh)\n"
                             "  program:stage('a', 0) program:stage('b', 1) program:pipeline { axis = 'pp', schedule = "
                             "'1f1b' } end) {} }\n");
    CHECK(compile_training(*made, {}).find("O")->plan.classes.size() == 2);
}

TEST_CASE("a round of steps only, and one with a ramp, has every size of each") {
    const std::string two =
        "p:also('A', function(u) " + set + " end)\np:also('B', function(u) " + set + " end)\np:round 'A*3, then B'\n";
    const auto made = traced(two, "[train]\nramp_start = 4\nramp_increment = 4\nramp_samples = 40\n" + sizes.substr(8));
    std::vector<std::string> found;
    for (const MarkedProgram& program : made->programs)
        if (program.entry.role == ProgramRole::train) found.push_back(program.entry.name);
    CHECK(found == std::vector<std::string>{"A", "A of 4", "A of 8", "B", "B of 4", "B of 8"});
}

TEST_CASE("a round that cannot run is refused with the line of the script") {
    const auto also = [](const std::string& body) { return "p:also('O', function(u) " + body + " end)\n"; };
    const std::string halve = also("for p in u:params() do u:set(p, p * 0.5) end");
    CHECK(refused(trained + halve + "p:round 'step*5 O'\n") == "nothing is refused");
    const std::string unknown = refused(trained + halve + "p:round 'step outer O'\n");
    CHECK(has(unknown, "a.lua:11"));
    CHECK(has(unknown, "no program \"outer\""));
    CHECK(has(unknown, "program:also(\"outer\""));
    const std::string unused = refused(trained + halve + "p:round 'step'\n");
    CHECK(has(unused, "a.lua:10"));
    CHECK(has(unused, "the program \"O\" never runs"));
    CHECK(has(refused(trained + halve), "the program \"O\" never runs"));
    CHECK(has(refused(trained + halve + "p:round 'O step'\n"), "it begins with O"));
    CHECK(has(refused(halve + "p:round 'step O'\n"), "call program:train_with first"));
    CHECK(has(refused(trained + apart), "the step of train_with never runs"));
    CHECK(has(refused(trained + halve + "p:round 'step O'\np:round 'step O'\n"), "round is called twice"));
    CHECK(has(refused(trained + also("") + "p:round 'step O'\n"), "the program \"O\" updates nothing"));
    CHECK(has(refused(also("u:count() u:set(o.state { name = 'n', shape = {} }, o.step())") + "p:round 'O'\n"),
              "no program that repeats updates a param"));
    CHECK(has(refused("p:also('step', function(u) end)\n"), "duplicate program \"step\""));
    CHECK(has(refused("p:also('a b', function(u) end)\n"), "invalid name \"a b\""));
    const std::string scaled = refused(apart, "[train]\nprecision = \"f16\"\n" + sizes.substr(8));
    CHECK(has(scaled, "program \"G\" takes a batch but updates no param"));
    CHECK(refused(apart, "[train]\nprecision = \"bf16\"\n" + sizes.substr(8)) == "nothing is refused");
    CHECK(has(refused(halve + halve), "duplicate program \"O\""));
    CHECK(has(refused("p:round 'step*'\n"), "a.lua:9: round \"step*\": expected a number"));
}

TEST_CASE("arrays that programs share must be the same in each") {
    const std::string kept = "p:also('O', function(u) for p in u:params() do u:set(p, u:state(p, 'm'";
    CHECK(has(refused(trained + kept + ", 'ones')) end end)\np:round 'step O'\n"),
              "different initial values of state a.w.m"));
    CHECK(refused(trained + kept + ")) end end)\np:round 'step O'\n") == "nothing is refused");
    const auto array = [](const std::string& shape) {
        return "p:also('O', function(u) u:set(o.state { name = 'mean', shape = " + shape +
               " }, o.constant(1)) for p in u:params() do u:set(p, p * 1) end end)\np:round 'step O'\n";
    };
    CHECK(has(refused(trained + array("{}")), "o.state: mean f32[] exists already as"));
    CHECK(has(refused(trained + array("{ {'embed', 4} }")), "a.lua:10"));  // set: types differ
}

TEST_CASE("two optimizers of a round do not share states by accident") {
    const std::string outer =
        "p:also('O', function(u) for p in u:params() do u:gradient(p, u:state(p, 'anchor') - p) end "
        "u:count(o.constant(1)) o.optim.sgd { lr = 1, momentum = 0.9";
    const std::string adamw = "p:train_with(o.optim.adamw {})\n";
    const std::string shared = refused(adamw + outer + " } (u) end)\np:round 'step*2 O'\n");
    CHECK(has(shared, "two optimizers of the round own the state a.w.m"));
    CHECK(has(shared, "name = \"outer\""));
    CHECK(refused(adamw + outer + ", name = 'outer' } (u) end)\np:round 'step*2 O'\n") == "nothing is refused");
    const std::string one = "local adamw = o.optim.adamw {}\np:also('A', adamw)\np:also('B', adamw)\np:round 'A B'\n";
    CHECK(refused(one) == "nothing is refused");
}

TEST_CASE("programs that name params in another way, or record another model, are refused") {
    const std::string other =
        "local calls = 0\np:also('A', function(u) calls = calls + 1 for p in u:params() do u:set(p, p - p:grad() * "
        "calls) "
        "end end)\np:round 'A'\n";
    CHECK(has(refused(other), "is not deterministic"));
    const std::string last = "p:also('G', function(u) u:set(o.state { name = 'n', shape = {} }, u:count()) end)\n";
    CHECK(has(refused(trained + last + "p:round 'step*3, then G'\n"), "no program that repeats updates a param"));
}

TEST_CASE("what an update is given in place of gradients is whole, and comes first") {
    const auto outer = [](const std::string& body) {
        return trained + "p:also('O', function(u) " + body + " end)\np:round 'step O'\n";
    };
    const std::string give = "for p in u:params() do u:gradient(p, p * 1) end ";
    CHECK(refused(outer(give + "u:count(o.constant(1)) o.optim.sgd { name = 'o' } (u)")) == "nothing is refused");
    CHECK(has(refused(outer(give + "o.optim.sgd { name = 'o' } (u)")), "update:count(value)"));
    CHECK(has(refused(outer("for p in u:params() do u:gradient(p, p * 1) break end " + set)),
              "gave other params a gradient, but not b.w"));
    CHECK(has(refused(outer(set + give)), "has already read gradients of the batch"));
    CHECK(has(refused(outer("for p in u:params() do u:gradient(p, o.constant(1)) end")), "is not f32 of the shape"));
    CHECK(has(refused(outer("u:set(o.state { name = 'n', shape = {} }, o.step()) " + set)),
              "sets a value before it reads a gradient"));
    CHECK(has(refused("p:train_with(function(u) u:count(o.constant(1)) end)\n"), "are those of its step"));
}
