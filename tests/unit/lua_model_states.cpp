// o.state: arrays that the model reads and sets, and no optimizer owns.
#include <catch2/catch.hpp>

#include "compile/compile.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

const std::string sizes = "[train]\nsteps = 4\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n";
const std::string mean = "local m = o.state { name = 'mean', shape = { {'embed', 3} }, initial = 2 }\n";
const std::string sgd = "o.optim.sgd { lr = 0.1 }";

/// A program whose forward function has `inside` before its end, trained by the function `optimizer`.
std::unique_ptr<Experiment> traced(const std::string& inside, const std::string& optimizer = sgd,
                                   const std::string& toml = sizes) {
    FakeHost host(toml);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 12}, {'embed', 3} }) }, function(batch)\n"
        "  local w = o.param { name = 'w', shape = { {'embed', 3} }, init = { kind = 'ones' } }\n"
        "  local y = batch.x * w\n" +
            inside +
            "\n  return (y * y):sum(), o.constant(4)\nend)\n"
            "p:train_with(" +
            optimizer + ")\np:compile()",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

std::string refused(const std::string& inside, const std::string& optimizer = sgd) {
    try {
        traced(inside, optimizer);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing is refused";
}

/// The op that makes what a state is after the step; nullptr if nothing sets it.
const Op* next_of(const Program& program, std::string_view name) {
    for (const Update& update : program.updates)
        if (program.value(update.target).name == name) return &program.op(program.value(update.value).op);
    return nullptr;
}

}  // namespace

TEST_CASE("a state of the model is set with the params in a train step, and only read elsewhere") {
    const auto made =
        traced("o.scope('norm', function()\n" + mean + "y = y - m m:next(0.9 * m + y:sum('batch') * (0.1 / 12)) end)");
    const Program& train = made->train();
    const Value& state = train.value(train.find("norm.mean").value());
    CHECK(state.role == Role::state);
    CHECK(state.of == none);
    CHECK(state.dims == std::vector<std::string>{"embed"});
    CHECK(state.init.number("scale") == 2);
    const Op* const next = next_of(train, "norm.mean");
    REQUIRE(next);
    CHECK(next->kind == "select");  // a step whose gradients are not finite leaves it as it was
    CHECK(next->phase == Phase::update);
    CHECK(train.op(train.value(next->inputs[0]).op).kind == "all_finite");
    const Program& evaluation = made->find("eval")->program;
    CHECK(evaluation.find("norm.mean"));
    CHECK(evaluation.updates.empty());
}

TEST_CASE("an optimizer of a function sets the model's states as it sets params") {
    const std::string set = "for p in u:params() do u:set(p, p - p:grad()) end";
    for (const std::string& optimizer :
         {"function(u) " + set + " end",
          "function(u) u:loss_scale() u:states(o.constant(1):all_finite()) " + set + " end"}) {
        const auto made = traced(mean + "m:next(m * 2)", optimizer);
        REQUIRE(next_of(made->train(), "mean"));
        CHECK(next_of(made->train(), "mean")->kind == "select");
        CHECK(next_of(made->train(), "w"));
    }
}

TEST_CASE("in half precision a state takes its next value in its own type") {
    const auto low = traced(mean + "m:next(y:sum('batch'))", sgd,
                            "[train]\nsteps = 4\nsequences_per_step = 12\nprecision = \"bf16\"\n"
                            "[data]\ntokens_per_sequence = 4\nvocab = 5\n");
    const Program& train = low->train();
    CHECK(train.value(train.find("mean").value()).type.dtype == DType::f32);
    for (const ValueId id : next_of(train, "mean")->inputs)
        if (train.value(id).type.shape.size() == 1) CHECK(train.value(id).type.dtype == DType::f32);
}

TEST_CASE("what a state cannot be or become is refused with the line of the script") {
    const std::string none_at_all = refused(mean + "y = y - m");
    CHECK(has(none_at_all, "a.lua:5"));
    CHECK(has(none_at_all, "has no next value"));
    const std::string twice = refused(mean + "m:next(m)\nm:next(m * 2)");
    CHECK(has(twice, "a.lua:7"));
    CHECK(has(twice, "has a next value already"));
    CHECK(has(refused(mean + "m:next(y)"), "the types differ"));
    CHECK(has(refused(mean + "w:next(y)"), "is not a state"));
    CHECK(has(refused(mean + mean + "m:next(m)"), "two values named \"mean\""));
    CHECK(has(refused("o.state { name = 'n', shape = {}, dtype = 'i32' }"), "expected a float type"));
    CHECK(has(refused("o.state { name = 'n', shape = {}, initial = 1 / 0 }"), "a finite number"));
    CHECK(has(refused("o.state { name = 'n', shape = {}, initial = 1e39 }"), "a finite number of f32"));
    CHECK(has(refused("o.state { name = 'n', shape = {}, dtype = 'f16', initial = 1e5 }"), "a finite number of f16"));
    CHECK(has(refused("o.state { shape = {} }"), "name"));
    CHECK(
        has(refused("", "function(u) o.state { name = 'n', shape = {} } end"), "inside the function given to o.trace"));
    CHECK(has(refused(mean + "m:next(m)", "function(u) u:loss_scale() for p in u:params() do u:set(p, p) end end"),
              "update:states(apply)"));
    CHECK(has(refused(mean + "m:next(m)", "function(u) end"), "the optimizer updates no param"));
}

TEST_CASE("an optimizer decides when states change only if it handles the loss scale, and once") {
    const std::string one = "o.constant(1):all_finite()", set = "for p in u:params() do u:set(p, p - p:grad()) end ";
    const auto why = [](const std::string& optimizer) {
        return refused("seen = y:all_finite()\n" + mean + "m:next(m)", "function(u) " + optimizer + " end");
    };
    for (const std::string& optimizer : {"u:states(" + one + ") " + set, set + "u:states(" + one + ")"}) {
        CHECK(has(why(optimizer), "the function has not called update:loss_scale"));
        CHECK(has(why(optimizer), "a.lua:10"));
    }
    const std::string states = "u:states(" + one + ") ";
    CHECK(has(why("u:loss_scale() " + states + states + set), "update:states: called a second time"));
    CHECK(has(why("u:loss_scale() u:states(seen) " + set), "is a value of another trace"));
    CHECK(why("u:loss_scale() " + states + set) == "nothing is refused");
}

TEST_CASE("values of another trace are refused wherever a value can be given, by name") {
    // `w` and `early` are of the trace of the model, which has ended.
    const std::string keep = "early, weight = (y * 2):sum():named('early'), w";
    const std::string step = "for p in u:params() do u:set(p, p - p:grad()) end ";
    for (const char* use : {"u:result('a', early)", "for p in u:params() do u:set(p, early) end", "u:set(early, early)",
                            "u:state(early, 'm')", "u:count():dropout(0.5, early)"}) {
        const std::string text = refused(keep, std::string("function(u) ") + use + " " + step + "end");
        INFO(use << ": " << text);
        CHECK(has(text, "early f32[]"));
        CHECK(has(text, "is a value of another trace"));
    }
    CHECK(has(refused(keep, "function(u) u:set(weight, weight) end"), "w f32[embed=3]"));
    CHECK(has(refused(keep, "function(u) if weight:grad() then " + step + "end end"),
              "grad: can only be called with a param of an optimizer's or a strategy's function"));
    // `old` is of the trace of the train step, and used in that of the evaluation.
    for (const char* use : {"o.result('a', old)", "o.result('a', old, 1)", "y:dropout(0.5, old)",
                            "o.random { shape = { {'batch', 12}, {'embed', 3} }, places = old }",
                            "o.state { name = 'n', shape = {} }:next(old)"}) {
        const std::string text = refused(std::string("if old then ") + use + " end old = old or y:sum()");
        INFO(use << ": " << text);
        CHECK(has(text, std::string_view(use).starts_with("o.random") ? "places is a value, expected a value of this"
                                                                      : "is a value of another trace"));
    }
}
