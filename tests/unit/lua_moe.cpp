// nn.moe: what comes of it in f64, against tests/lua/mixture.lua, which has neither ids nor slots; and its errors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "folders.h"
#include "interpreter.h"
#include "ir/flops.h"
#include "lua/fake_host.h"
#include "lua/script.h"

using namespace orrery;

namespace {

/// The sum of squares of a mixture of x [2, 12, 5] W with these options, by `layer`: nn.moe or mixture.lua.
Program mixture(const std::string& layer, const std::string& options) {
    FakeHost host("[train]\nsteps = 100\n");
    run_script_text(
        "local o, mixture = require 'orrery', require 'mixture'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 2}, {'seq', 12}, {'from', 5} }) }, function(b)\n"
        "  local fixed = (o.iota { shape = { {'router', 6} }, dtype = 'f32' } * 3):cos()\n"
        "  local x = o.nn.linear(b.x, 'in', { 'embed', 8 }, { bias = false })\n  return (" +
            layer + "(x, { experts = 6, mlp = 7" + options +
            " })):sumsq()\nend)\np:train_with(o.optim.sgd { lr = 0.1, momentum = 0 })\np:compile()\n",
        "a.lua", in_source("tests/lua"), host);
    return host.experiment->train();
}

/// Values by name, so that programs of other ops have the same.
std::vector<test::Array> evaluated(const Program& program) {
    return test::evaluate(program, [](const Value& value, ValueId) {
        return test::fill_small(value, std::accumulate(value.name.begin(), value.name.end(), ValueId{0}));
    });
}

const Op* first(const Program& program, std::string_view kind) {
    const auto found = std::ranges::find(program.ops, kind, &Op::kind);
    return found == program.ops.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("nn.moe and its gradients are those of experts that compute every token") {
    struct Case {
        std::string options;
        bool drops;
    };
    const std::vector<Case> cases{
        {", top_k = 2", true},
        {", top_k = 2, capacity = 3", false},
        {", top_k = 3, parts = 2, capacity = 0.5, renormalise = true", true},
        {", top_k = 2, capacity = 0.5, drop = 'weight', renormalise = true, parts = 3", true},
        {", top_k = 2, first = 'top_k', scale = 2.5", true},
        {", top_k = 2, first = 'top_k', scores = 'sigmoid', drop = 'weight', capacity = 0.75", true},
        {", top_k = 3, scores = 'sigmoid', renormalise = true, groups = 3, top_groups = 2, correction = fixed", true},
        {", top_k = 2, groups = 2, top_groups = 1, capacity = 1", true},
        {", top_k = 1, correction = fixed, shared = 9", true},
        {", top_k = 2, shared = 4, shared_gate = true", true},
        {", top_k = 2, router_bias = true, first = 'top_k', bias = true, limit = 0.02", true},
        {", top_k = 2, dispatch = 'rows', blocks = 3", true},
        {", top_k = 3, dispatch = 'rows', blocks = 2, parts = 2, capacity = 0.5, renormalise = true", true},
        {", top_k = 2, dispatch = 'rows', blocks = 6, capacity = 3, bias = true, scale = 2.5", false},
        {", top_k = 3, dispatch = 'rows', blocks = 1, drop = 'weight', capacity = 0.75", true},
    };
    for (const Case& c : cases) {
        INFO(c.options);
        const Program by_slots = mixture("o.nn.moe", c.options), by_all = mixture("mixture", c.options);
        const auto left = evaluated(by_slots), right = evaluated(by_all);
        const Op* assign = first(by_slots, "assign_slots");
        REQUIRE(assign);
        const test::Array& slots = left[static_cast<size_t>(assign->outputs[0])];
        bool drops = false;
        for (int64_t i = 0; i < slots.type.count(); ++i) drops |= slots.i32_at(i) < 0;
        CHECK(drops == c.drops);
        CHECK_FALSE(first(by_all, "assign_slots"));
        REQUIRE(by_slots.params().size() == by_all.params().size());
        for (const ValueId param : by_slots.params()) {
            INFO(by_slots.value(param).name);
            const test::Array& x = left[static_cast<size_t>(by_slots.grad_of(param))];
            const auto other = by_all.find(by_slots.value(param).name);
            REQUIRE(other);
            const test::Array& y = right[static_cast<size_t>(by_all.grad_of(*other))];
            REQUIRE(x.type.shape == y.type.shape);
            double largest = 0;
            for (int64_t i = 0; i < x.type.count(); ++i) {
                CHECK(x.f64()[i] == Approx(y.f64()[i]).margin(1e-11));
                largest = std::max(largest, std::abs(x.f64()[i]));
            }
            CHECK(largest > 1e-6);
        }
    }
}

TEST_CASE("FLOPs and active parameters of a mixture are those of the experts that a token chooses") {
    const Program slots = mixture("o.nn.moe", ", top_k = 2, capacity = 3"), all = mixture("mixture", ", top_k = 2");
    constexpr double tokens = 24, in = 5 * 8, gate = 8 * 6, expert = 3 * 8 * 7;
    CHECK(active_parameters(slots) == in + gate + 2 * expert);
    CHECK(active_parameters(all) == in + gate + 6 * expert);
    CHECK(model_flops(slots) == 2 * tokens * (2 * in + 3 * gate + 2 * 3 * expert));  // x has no gradient
    CHECK(model_flops(mixture("o.nn.moe", ", top_k = 2, capacity = 0.5")) ==
          2 * tokens * (2 * in + 3 * gate) + 2 * (2 * 6 * 2) * 3 * expert);   // 2 slots of 6 experts in 2 sequences
    CHECK(model_flops(mixture("o.nn.moe", ", top_k = 5, capacity = 0.4")) ==  // 0.4 * 12 * 5 / 6 is above 4 in f64
          2 * tokens * (2 * in + 3 * gate) + 2 * (4 * 6 * 2) * 3 * expert);
}

TEST_CASE("when all tokens choose one expert, all but its slots are dropped") {
    const Program program = mixture("o.nn.moe", ", top_k = 2, capacity = 1.5");
    const auto values = test::evaluate(program, [](const Value& value, ValueId id) {
        test::Array array = test::fill_small(value, id);
        if (value.name == "gate.weight") std::fill_n(array.f64(), array.type.count(), 0.0);  // ties: experts 0 and 1
        return array;
    });
    const Op* assign = first(program, "assign_slots");
    REQUIRE(assign);
    const test::Array& slots = values[static_cast<size_t>(assign->outputs[0])];
    const test::Array& load = values[static_cast<size_t>(assign->outputs[1])];
    for (int64_t group = 0; group < 2; ++group) {
        for (int64_t e = 0; e < 6; ++e) CHECK(load.i32_at(group * 6 + e) == (e < 2 ? 12 : 0));
        for (int64_t i = 0; i < 24; ++i)  // 1.5 * 12 * 2 / 6 = 6 slots of an expert
            CHECK(slots.i32_at(group * 24 + i) == (i / 2 < 6 ? i % 2 * 6 + i / 2 : -1));
    }
}

TEST_CASE("nn.moe says what to do about options that do not fit") {
    const auto refused = [](const std::string& options, const std::string& words) {
        INFO(options);
        CHECK_THROWS_WITH(mixture("o.nn.moe", options), Catch::Contains(words));
    };
    refused(", top_k = 7", "nn.moe: top_k = 7 is more than the 6 experts");
    refused("", "nn.moe: top_k = nil: expected an integer of at least 1");
    refused(", top_k = 2, parts = 5", "5 parts do not divide a sequence of 12 tokens: give a number that does, or 1");
    refused(", top_k = 2, groups = 4", "4 groups do not divide 6 experts: give a number that does");
    refused(", top_k = 3, groups = 3, top_groups = 1", "top_k = 3 is more than the 2 experts of 1 groups");
    refused(", top_k = 2, groups = 2, top_groups = 3", "top_groups = 3 is more than the 2 groups");
    refused(", top_k = 2, capacity = 0.1, parts = 2",
            "fewer than the 2 experts of a token\n  set capacity to at least");
    refused(", top_k = 2, capacity = 0", "capacity = 0: expected a number above 0");
    refused(", top_k = 2, drop = 'late'", "drop = late: expected \"position\" or \"weight\"");
    refused(", top_k = 2, overflow = 'grow'", "overflow = grow: expected \"drop\"");
    refused(", top_k = 2, shared_gate = true", "shared_gate needs shared, the width of the shared expert");
    refused(", top_k = 2, dispatch = 'row'", "dispatch = row: expected \"slab\" or \"rows\"");
    refused(", top_k = 2, dispatch = 'rows'", "dispatch = \"rows\" needs blocks, the number of ranks");
    refused(", top_k = 2, blocks = 2", "blocks = 2: only dispatch = \"rows\" has blocks");
    refused(", top_k = 2, dispatch = 'rows', blocks = 4",
            "4 blocks do not divide 6 experts: give the number of ranks that share the experts");
    refused(", top_k = 2, limit = -1", "limit = -1: expected a number above 0");
    refused(", top_k = 2, limit = 0 / 0", "expected a number above 0");
    refused(", top_k = 2, scale = 0", "scale = 0: expected a number above 0");
    refused(", top_k = 2, shared = 0", "shared = 0: expected an integer of at least 1");
    refused(", top_k = 2, bias = 0", "bias = 0: expected true or false");
    refused(", top_k = 2, renormalise = 'no'", "renormalise = no: expected true or false");
    refused(", top_k = 2, overflow = 'again', drop = 'weight'",
            "drop = \"weight\": nothing is dropped with overflow = \"again\"");
    refused(", top_k = 2, balance = 'sequence'", "balance = sequence: expected a table of options");
    refused(", top_k = 2, correction = 0.5", "correction = 0.5: expected a value of the shape [6], the experts");
    refused(", top_k = 2, correction = o.constant(1)", "expected a value of the shape [6], the experts");
    refused(", top_k = 2, expert = 2", "nn.moe has no option expert; it has experts, top_k");
}
