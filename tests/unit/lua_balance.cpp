// The balance of nn.moe: losses, bias and reports, against their formulas in f64.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "folders.h"
#include "interpreter.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

constexpr int64_t B = 4, T = 6, E = 5, K = 2;  // sequences, their tokens, experts, choices of a token

/// A mixture of experts on [B, T, 8], trained with these options of its balance.
std::unique_ptr<Experiment> balanced(const std::string& balance, const std::string& moe = "",
                                     const std::string& closed = "o.nn.balanced({ route, second }, loss, count)") {
    FakeHost host("[train]\nsteps = 100\n");
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 4}, {'seq', 6}, {'from', 5} }),\n"
        "                         targets = o.array('i32', { {'batch', 4}, {'seq', 6} }) }, function(b)\n"
        "  local x = o.nn.linear(b.x, 'in', { 'embed', 8 }, { bias = false })\n"
        "  local targets = b.targets\n"
        "  local y, route = o.nn.moe(x, { experts = 5, mlp = 7, top_k = 2, capacity = 0.8,\n"
        "    balance = { " +
            balance + " }" + moe +
            " })\n"
            "  route.scores:named 'scores' route.logits:named 'logits' route.load:named 'load'\n"
            "  local count = o.constant(24)\n"
            "  local second, loss = {}, y:sumsq()\n"
            "  for key, value in pairs(route) do second[key] = value end\n"
            "  return " +
            closed +
            ", count\n"
            "end)\np:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\np:compile()\n",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

/// A train step that was evaluated.
struct Step {
    explicit Step(const std::string& balance, const std::string& moe = "")
        : experiment(balanced(balance, moe)), program(experiment->train()) {
        values = test::evaluate(program, [](const Value& value, ValueId id) {
            test::Array array = test::fill_small(value, id);
            if (value.role == Role::state)
                for (int64_t i = 0; i < array.type.count(); ++i) array.f64()[i] = static_cast<double>(i % 3 + 1) / 4;
            if (value.type.dtype == DType::i32)
                for (int64_t i = 0; i < array.type.count(); ++i) --array.i32()[i];  // -1: a target that does not count
            return array;
        });
    }
    const test::Array& of(const std::string& name) const { return values[static_cast<size_t>(*program.find(name))]; }
    double result(const std::string& name, int64_t at = 0) const {
        return values[static_cast<size_t>(*program.result(name))].f64()[at];
    }
    /// What a state is after the step.
    const double* next(const std::string& name) const {
        for (const Update& update : program.updates)
            if (program.value(update.target).name == name) return values[static_cast<size_t>(update.value)].f64();
        return nullptr;
    }
    double score(int64_t b, int64_t t, int64_t e) const { return of("scores").f64()[(b * T + t) * E + e]; }
    double logit(int64_t b, int64_t t, int64_t e) const { return of("logits").f64()[(b * T + t) * E + e]; }
    double share(int64_t b, int64_t t, int64_t e) const {
        double sum = 0;
        for (int64_t i = 0; i < E; ++i) sum += score(b, t, i);
        return score(b, t, e) / sum;
    }
    int64_t parts() const { return of("load").type.count() / (B * E); }
    /// Choices of an expert in sequence b, or in all.
    double load(int64_t e, int64_t b = -1) const {
        double sum = 0;
        for (int64_t i = 0; i < B; ++i)
            for (int64_t p = 0; p < parts(); ++p)
                if (b < 0 || b == i) sum += of("load").i32_at((i * parts() + p) * E + e);
        return sum;
    }
    bool counts(int64_t b, int64_t t) const { return of("targets").i32_at(b * T + t) >= 0; }

    const std::unique_ptr<Experiment> experiment;
    const Program& program;
    std::vector<test::Array> values;
};

/// The auxiliary loss over groups of `of` sequences: the mean over groups times tokens, or times those that count.
double loss_of_groups(const Step& step, int64_t of, bool targets) {
    double loss = 0;
    for (int64_t g = 0; g < B / of; ++g) {
        double each = 0, tokens = 0;
        for (int64_t e = 0; e < E; ++e) {
            double f = 0, p = 0;
            for (int64_t b = g * of; b < (g + 1) * of; ++b) {
                f += step.load(e, b) * E / static_cast<double>(K * T * of);
                for (int64_t t = 0; t < T; ++t) p += step.share(b, t, e) / static_cast<double>(T * of);
            }
            each += f * p;
        }
        for (int64_t b = g * of; b < (g + 1) * of; ++b)
            for (int64_t t = 0; t < T; ++t) tokens += !targets || step.counts(b, t) ? 1 : 0;
        loss += each * tokens;
    }
    return loss;
}

}  // namespace

TEST_CASE("auxiliary losses are sums over groups of the shares of loads and of scores, times tokens") {
    for (const char* moe : {"", ", scores = 'sigmoid'", ", parts = 2, capacity = 1"})
        for (const bool targets : {false, true}) {
            INFO(moe << " " << targets);
            const std::string more = std::string(", coefficient = 0.5") + (targets ? ", targets = targets" : "");
            const Step one("loss = 'sequence'" + more, moe);
            CHECK(one.result("balance_loss.sum") == Approx(loss_of_groups(one, 1, targets)).epsilon(1e-12));
            const Step two("loss = 'groups', groups = 2" + more, moe);
            CHECK(two.result("balance_loss.sum") == Approx(loss_of_groups(two, 2, targets)).epsilon(1e-12));
            CHECK(one.result("loss_sum") > one.result("balance_loss.sum"));
        }
}

TEST_CASE("the loss by the loads of the step before reads a state, and leaves it this step's loads") {
    const Step step("loss = 'last_step', coefficient = 0.5, targets = targets");
    double sum = 0, loss = 0;
    for (int64_t e = 0; e < E; ++e) sum += step.of("gate.loads").f64()[e];
    for (int64_t e = 0; e < E; ++e)
        for (int64_t b = 0; b < B; ++b)
            for (int64_t t = 0; t < T; ++t)
                if (step.counts(b, t)) loss += step.of("gate.loads").f64()[e] * E / sum * step.share(b, t, e);
    CHECK(step.result("balance_loss.sum") == Approx(loss).epsilon(1e-12));  // of two routes, each times 0.5
    REQUIRE(step.next("gate.loads"));
    for (int64_t e = 0; e < E; ++e) CHECK(step.next("gate.loads")[e] == step.load(e));
}

TEST_CASE("the bias moves by its rate towards the mean load, and evaluation reads it") {
    const Step step("rate = 0.125");
    REQUIRE(step.next("gate.correction"));
    for (int64_t e = 0; e < E; ++e) {
        const double mean = static_cast<double>(B * T * K) / E, load = step.load(e);
        const double moved = load > mean ? -0.125 : load < mean ? 0.125 : 0;
        CHECK(step.next("gate.correction")[e] == step.of("gate.correction").f64()[e] + moved);
    }
    const Program& evaluation = step.experiment->find("eval")->program;
    CHECK(evaluation.find("gate.correction"));
    CHECK(evaluation.results.size() == 2);  // the loss and its count
}

TEST_CASE("the z-loss is the sum of squares of log-sum-exp; loads and dropped shares are those of the step") {
    const Step step("z = 0.25, targets = targets");
    double z = 0, largest = 0, dropped = 0;
    for (int64_t b = 0; b < B; ++b)
        for (int64_t t = 0; t < T; ++t) {
            double sum = 0;
            for (int64_t e = 0; e < E; ++e) sum += std::exp(step.logit(b, t, e));
            if (step.counts(b, t)) z += std::log(sum) * std::log(sum);
        }
    for (int64_t e = 0; e < E; ++e) {
        largest = std::max(largest, step.load(e));
        for (int64_t b = 0; b < B; ++b) dropped += std::max(0.0, step.load(e, b) - 2);  // ceil(0.8 * 6 * 2 / 5) slots
    }
    CHECK(step.result("z_loss.sum") == Approx(2 * 0.25 * z).epsilon(1e-12));
    CHECK(dropped > 0);
    for (const int64_t layer : {0, 1}) {
        CHECK(step.result("expert_load.step", layer) == Approx(largest * E / static_cast<double>(B * T * K)));
        CHECK(step.result("expert_drop.step", layer) == Approx(dropped / static_cast<double>(B * T * K)));
    }
}

TEST_CASE("losses of a balance that the trace leaves out of its loss are refused, and routes that are given twice") {
    const auto refused = [](const std::string& balance, const std::string& closed, const std::string& words) {
        INFO(balance << " " << closed);
        CHECK_THROWS_WITH(balanced(balance, "", closed), Catch::Contains(words));
    };
    for (const std::string closed : {"loss", "(function() o.nn.balanced({ route }, loss, count) return loss end)()",
                                     "o.nn.balanced({}, loss, count)"}) {
        refused("loss = 'sequence'", closed, "balance_loss is not part of the loss that the trace returns");
        refused("z = 0.1", closed, "z_loss is not part of the loss");
        refused("z = 0.1", closed, "give its route to nn.balanced and return the loss that it returns");
        CHECK(balanced("loss = 'none', rate = 0.1", "", closed));
    }
    refused("loss = 'sequence'",
            "o.scope('mlp', function() o.nn.moe(x, { experts = 5, mlp = 7, top_k = 2, "
            "balance = { loss = 'sequence' } }) return o.nn.balanced({ route }, loss, count) end)",
            "a.lua:12: balance_loss of mlp is not part of the loss");
    CHECK(balanced("loss = 'sequence'", "", "loss + 0.5 * (route.balance_loss or 0)"));
    refused("loss = 'sequence'", "o.nn.balanced({ route, route }, loss, count)",
            "nn.balanced: entry 2 of routes was given before, and its losses would count twice");
    refused("z = 1", "o.nn.balanced({ route }, o.nn.balanced({ route }, loss, count), count)",
            "entry 1 of routes was given before");
    refused("z = 1", "o.nn.balanced(route, loss, count)", "nn.balanced: a list of routes expected");
    refused("z = 1", "o.nn.balanced({ y }, loss, count)", "entry 1 of routes is not a route");
}

TEST_CASE("options of a balance that do not fit are refused") {
    const auto refused = [](const std::string& balance, const std::string& words, const std::string& moe = "") {
        INFO(balance);
        CHECK_THROWS_WITH(balanced(balance, moe), Catch::Contains(words));
    };
    refused("loss = 'batch'", "balance: loss = batch: expected \"none\", \"sequence\"");
    refused("loss = 'groups'", "loss = \"groups\" needs groups, a divisor of the batch of 4 sequences; it is 0");
    refused("loss = 'groups', groups = 3", "a divisor of the batch of 4 sequences; it is 3");
    refused("loss = 'sequence', groups = 2", "groups = 2: only loss = \"groups\" has groups of sequences");
    refused("coefficient = 0.1", "coefficient = 0.1: it multiplies the loss, and there is none");
    refused("loss = 'sequence', targets = b.targets:reshape { { 'batch', 6 }, { 'seq', 4 } }",
            "has another shape than the tokens, [4, 6]");
    refused("factor = 1", "balance: no option \"factor\"");
    refused("z = -1", "z is -1, expected a number of at least 0");
    refused("rate = 0.1", "correction and balance.rate both set the bias of the choice",
            ", correction = o.constant(1)");
}
