// Plans whose experts have a given load: which kernels change, and what that does to a step.
#include "sim/software/expert_loads.h"

#include <catch2/catch.hpp>
#include <set>

#include "compile/pipeline.h"
#include "ir/counted_rows.h"
#include "layout_models.h"
#include "plan/print.h"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr int64_t batch = 2, tokens = 16, chosen = 2, experts = 4, embed = 8, wide = 12;

/// A mixture of x [batch, tokens, embed], one matrix in and one out of each expert, with `slots` in a sequence.
Model mixture(int64_t slots) {
    Model m;
    const Attributes size{{"experts", experts}, {"slots", slots}};
    const ValueId x = m.input("x", {batch, tokens, embed}, {"batch", "seq", "embed"});
    const ValueId gate = m.param("gate", {embed, experts}, {"embed", "router"});
    const auto best = m.build.add("top_k", {m.op("matmul", {x, gate})}, {{"k", chosen}}, m.here());
    const auto places = m.build.add("assign_slots", {best[1]}, size, m.here());
    ValueId h = m.op("dispatch", {x, places[0]}, size);
    h = m.op("reshape", {h}, {{"shape", Shape{batch, experts, slots, embed}}},
             {{"batch", "experts", "slots", "embed"}});
    const auto product = [&](const char* name, Shape shape, Names dims) {
        return m.op("grouped_matmul", {h, m.param(name, std::move(shape), std::move(dims)), places[1]});
    };
    h = product("up", {experts, embed, wide}, {"experts", "embed", "mlp"});
    h = product("down", {experts, wide, embed}, {"experts", "mlp", "embed"});
    const ValueId y = m.op("combine", {h, places[0], best[0]});
    m.train(m.op("sumsq", {y}));
    return m;
}

Plan made(const Model& model, const Mesh& mesh) {
    Persistent persistent;
    return plan_of(distribute(model.program, mesh), mesh, persistent);
}

/// Rows of slots in each launch of an expert's product; `others` counts the remaining launches.
std::multiset<int64_t> rows_of(const Plan& plan, int64_t& others) {
    std::multiset<int64_t> rows;
    for (const RankClass& c : plan.classes)
        for (const Instruction& i : c.stream) {
            if (i.opcode != Opcode::kernel) continue;
            const KernelSpec& spec = c.kernels[static_cast<size_t>(i.kernel)];
            if (!spec.op.starts_with("grouped_matmul")) {
                ++others;
                continue;
            }
            const Shape& x = spec.inputs[0].shape;
            rows.insert(x[x.size() - 2]);
            const TensorType& last = spec.op == "grouped_matmul" ? spec.outputs[0] : spec.inputs[1];
            CHECK(last.shape[last.shape.size() - 2] == x[x.size() - 2]);
        }
    return rows;
}

}  // namespace

TEST_CASE("expert loads: the rows of an expert are its part of the choices, up to the slots") {
    const Program program = mixture(10).program;
    int64_t found = 0;
    for (const Op& op : program.ops) {
        const auto counted = counted_rows(program, op);
        CHECK(counted.has_value() == op.kind.starts_with("grouped_matmul"));
        if (!counted) continue;
        ++found;
        CHECK(counted->choices == tokens * chosen);
        CHECK(counted->experts == experts);
        CHECK(counted->slots == 10);
        CHECK(counted->mean() == 8);
        CHECK(counted->rows(1.125) == 9);
        CHECK(counted->rows(7) == 10);
    }
    CHECK(found == 5);  // two GEMMs and their gradients, but for that of the input
}

TEST_CASE("expert loads: all GEMMs of experts have the rows of their load, and nothing else changes") {
    const Model model = mixture(10);
    for (const Mesh& mesh : {Mesh(), Mesh({{"dp", 2}})}) {
        Model marked = model;
        marked.split_names({{"batch", "dp"}});
        const Plan plan = made(marked, mesh);
        int64_t before = 0, after = 0;
        CHECK(rows_of(plan, before) == std::multiset<int64_t>{10, 10, 10, 10, 10});
        const ExpertLoads even = with_expert_loads(plan, 1);
        CHECK(rows_of(even.plan, after) == std::multiset<int64_t>{8, 8, 8, 8, 8});
        CHECK(before == after);
        CHECK(even.launches == 5);
        CHECK(even.slots == Approx(0.8));
        CHECK(even.dropped == 0);
        CHECK(even.plan.fingerprint == for_prices_alone);
        const ExpertLoads full = with_expert_loads(plan, 2);
        CHECK(rows_of(full.plan, after) == rows_of(plan, before));
        CHECK(full.slots == 1);
        CHECK(full.dropped == Approx(1 - 10.0 / 16));
        CHECK(plan.classes[0].stream.size() == even.plan.classes[0].stream.size());
    }
}

TEST_CASE("expert loads: a program without experts has none") {
    const ExpertLoads none_at_all = with_expert_loads(made(mlp(4, 8, 16), Mesh()), 1);
    CHECK(none_at_all.launches == 0);
}
