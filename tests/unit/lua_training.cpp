// What scripts ask for, in numbers: schedules, optimizers, and programs on meshes against the same on one rank.
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <sstream>

#include "folders.h"
#include "interpreter.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "plan_ranks.h"

using namespace orrery;

namespace {

std::unique_ptr<Experiment> traced(const std::string& script, const std::string& toml,
                                   const std::vector<std::string>& sets = {}) {
    FakeHost host(toml, sets);
    host.strategies = built_strategy;
    run_script_text(script, "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

const std::string sizes = "[train]\nsteps = 40\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n";

/// One param w [3] with the gradient 2 w + b: loss = sum(w * w) + sum(b * w) over a batch of one.
Program one_param(const std::string& optimizer) {
    const auto made = traced(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'embed', 3} }) }, function(batch)\n"
        "  local w = o.param { name = 'w', shape = { {'embed', 3} }, init = { kind = 'ones' } }\n"
        "  return (w * w):sum() + (batch.x * w):sum(), o.constant(4)\nend)\n"
        "p:train_with(o.optim." +
            optimizer + ")\np:compile()",
        sizes);
    return made->train();
}

/// Every value of the program, with `w`, its states, x and the step as given.
class Evaluated {
public:
    Evaluated(const Program& program, double step) : program_(program) {
        values_ = test::evaluate(program, [&](const Value& value, ValueId) {
            test::Array array(test::widened(value.type));
            const std::vector<double> start = value.name == "w"     ? w
                                              : value.name == "x"   ? x
                                              : value.name == "w.m" ? m
                                              : value.name == "w.v" ? v
                                                                    : std::vector<double>(3, step);
            for (int64_t i = 0; i < array.type.count(); ++i) array.f64()[i] = start[static_cast<size_t>(i)];
            return array;
        });
    }
    double result(const std::string& name) const { return *values_[static_cast<size_t>(*program_.result(name))].f64(); }
    double updated(const std::string& name, size_t i) const {
        for (const Update& update : program_.updates)
            if (program_.value(update.target).name == name) return values_[static_cast<size_t>(update.value)].f64()[i];
        return NAN;
    }

    static inline const std::vector<double> w{0.5, -1, 2}, x{1, 0.25, -3}, m{0.1, 0.2, -0.3}, v{0.4, 0.01, 0.09};
    static double gradient(size_t i) { return 2 * w[i] + x[i]; }
    static double norm() {
        double sum = 0;
        for (size_t i = 0; i < 3; ++i) sum += gradient(i) * gradient(i);
        return std::sqrt(sum) / 4;  // the count is 4
    }

private:
    const Program& program_;
    std::vector<test::Array> values_;
};

std::string read(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("a sum that keeps its dims and the marks of messages do not meet") {
    const auto made = traced(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 4}, {'embed', 3} }) }, function(batch)\n"
        "  local w = o.param { name = 'w', shape = { {'rows', 2}, {'embed', 3} }, init = { kind = 'ones' } }\n"
        "  local y = (batch.x * w:sum { dims = { 1 }, keep = true }:sum { dims = { 1 } }):sum()\n"
        "  return y, o.constant(4)\nend)\n"
        "p:train_with(o.optim.sgd { lr = 1 })\np:compile()",
        sizes, {"train.microbatches=2"});
    CHECK_NOTHROW(test::compile(made->train(), made->mesh));
}

TEST_CASE("learning rates follow their formulas") {
    const auto rate = [](const std::string& schedule, double step) {
        const Program program = one_param("sgd { lr = " + schedule + " }");
        return Evaluated(program, step).result("lr");
    };
    const double pi = std::acos(-1.0);
    const std::string cosine = "o.lr.cosine { peak = 2, warmup = 10, floor = 0.2, steps = 110 }";
    CHECK(rate(cosine, 1) == Approx(0.2));
    CHECK(rate(cosine, 5) == Approx(1));
    CHECK(rate(cosine, 10) == Approx(2));
    CHECK(rate(cosine, 35) == Approx(0.2 + 0.9 * (1 + std::cos(pi / 4))));
    CHECK(rate(cosine, 60) == Approx(1.1));
    CHECK(rate(cosine, 110) == Approx(0.2));
    CHECK(rate(cosine, 500) == Approx(0.2));
    const std::string linear = "o.lr.linear { peak = 2, warmup = 10, floor = 1 }";  // 40 steps, of [train]
    CHECK(rate(linear, 9) == Approx(1.8));
    CHECK(rate(linear, 25) == Approx(1.5));
    CHECK(rate(linear, 40) == Approx(1));
    CHECK(rate("o.lr.constant { peak = 3, warmup = 4 }", 2) == Approx(1.5));
    CHECK(rate("o.lr.constant { peak = 3, warmup = 4 }", 77) == Approx(3));
    CHECK(rate("0.25", 7) == Approx(0.25));
    CHECK(rate("function(step) return step * 0.5 + 1 end", 7) == Approx(4.5));
}

TEST_CASE("sgd with momentum, decay and clipping is its formula") {
    const Program plain = one_param("sgd { lr = 0.5, momentum = 0 }");
    const Program full = one_param(
        "sgd { lr = 0.5, momentum = 0.8, clip = 0.3, groups = { { match = '^w$', decay = 0.2, "
        "lr_scale = 2 } } }");
    const Evaluated a(plain, 3), b(full, 3);
    CHECK(a.result("grad_norm") == Approx(Evaluated::norm()));
    for (size_t i = 0; i < 3; ++i) {
        CHECK(a.updated("w", i) == Approx(Evaluated::w[i] - 0.5 * Evaluated::gradient(i) / 4));
        const double g = Evaluated::gradient(i) / 4 * (0.3 / Evaluated::norm()) + 0.2 * Evaluated::w[i];
        const double moved = 0.8 * Evaluated::m[i] + g;
        CHECK(b.updated("w.m", i) == Approx(moved));
        CHECK(b.updated("w", i) == Approx(Evaluated::w[i] - 2 * 0.5 * moved));
    }
}

TEST_CASE("adamw with bias correction, decay and clipping is its formula") {
    for (const double clip : {0.3, 100.0}) {
        const Program program =
            one_param("adamw { lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 1e-3, clip = " + std::to_string(clip) +
                      ", groups = { { rank = 1, decay = 0.2 } } }");
        const Evaluated at(program, 3);
        for (size_t i = 0; i < 3; ++i) {
            const double g = Evaluated::gradient(i) / 4 * std::min(1.0, clip / Evaluated::norm());
            const double m = 0.8 * Evaluated::m[i] + 0.2 * g, v = 0.9 * Evaluated::v[i] + 0.1 * g * g;
            const double step = (m / (1 - std::pow(0.8, 3))) / (std::sqrt(v / (1 - std::pow(0.9, 3))) + 1e-3);
            CHECK(at.updated("w.m", i) == Approx(m));
            CHECK(at.updated("w.v", i) == Approx(v));
            CHECK(at.updated("w", i) == Approx(Evaluated::w[i] * (1 - 0.1 * 0.2) - 0.1 * step));
        }
    }
}

TEST_CASE("the tensor-parallel MLP of scripts/mlp.lua trains as on one rank") {
    const std::string script = read(in_source("scripts/mlp.lua"));
    const auto run = [&](std::vector<std::string> sets) {
        for (const char* set : {"script.embed=6", "script.mlp=12", "script.layers=2"}) sets.emplace_back(set);
        const auto made = traced(script, sizes, sets);
        return test::run_steps(test::compile(made->train(), made->mesh), 3).values;
    };
    const auto one = run({});
    CHECK(one.count("result loss_sum"));
    CHECK(one.count("layers.1.up.weight"));
    CHECK(test::difference(run({"mesh.tp=2"}), one, 2e-5) == "");
    CHECK(test::difference(run({"mesh.tp=3"}), one, 2e-5) == "");
    CHECK(test::difference(run({"mesh.dp=2", "mesh.tp=3"}), one, 2e-5) == "");
    CHECK(test::difference(run({"mesh.dp=3", "mesh.tp=2", "train.microbatches=2"}), one, 2e-5) == "");
}

TEST_CASE("gpt with dropout draws the same masks on every mesh") {
    const std::string script =
        "local o = require 'orrery'\nlocal data = o.data.text {}\n"
        "local m = require 'orrery.models.gpt' { layers = 2, embed = 8, heads = 2, vocab = 5, seq = 4, dropout = 0.25 "
        "}\n"
        "local p = o.trace('g', data.signature, function(b) return m:loss(b.tokens, b.targets) end)\n"
        "p:train_with(o.optim.adamw { lr = o.lr.linear { peak = 1e-2, warmup = 2 } })\n"
        "p:parallel { o.strategy.data { axis = 'dp' } }\np:compile()";
    const auto run = [&](const std::vector<std::string>& sets) {
        const auto made = traced(script, sizes, sets);
        return test::run_steps(test::compile(made->train(), made->mesh), 2).values;
    };
    const auto one = run({});
    // The key bias has a gradient of zero and AdamW turns its rounding into steps: left out.
    const auto without = [](test::Contents values) {
        std::erase_if(values, [](const auto& item) { return item.first.find("attn.k.bias") != std::string::npos; });
        return values;
    };
    CHECK(test::difference(without(run({"mesh.dp=2"})), without(one), 1e-4) == "");
    CHECK(test::difference(without(run({"mesh.dp=3", "train.microbatches=2"})), without(one), 1e-4) == "");
}
