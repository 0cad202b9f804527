// Plans on meshes of threads give the one-rank result.
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/print.h"
#include "plan/summary.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated();

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

/// Two steps on the mesh leave the params, states and results that two steps on one rank leave.
void same_as_one_rank(const Program& program, const Mesh& mesh, double tolerance = 2e-5) {
    INFO("mesh " << mesh.text());
    Program alone = program;
    const Ran expected = run_steps(compile(alone, Mesh()), 2);
    const Lowered lowered = compile(program, mesh);
    INFO(print(lowered.plan));
    CHECK(difference(run_steps(lowered, 2).values, expected.values, tolerance) == "");
}

}  // namespace

TEST_CASE("a perceptron with AdamW learns on one rank") {
    Model m = mlp(8, 4, 12, true, true);
    const Lowered lowered = compile(m.program, Mesh());
    const Ran first = run_steps(lowered, 1), later = run_steps(lowered, 20);
    CHECK(std::isfinite(later.values.at("result loss_sum")[0]));
    CHECK(later.values.at("result loss_sum")[0] < first.values.at("result loss_sum")[0]);
}

TEST_CASE("micro-batches add up to the batch") {
    for (bool clip : {false, true}) {
        Model m = mlp(8, 4, 12, true, clip);
        same_as_one_rank(m.program, mesh_of({}, 2));
        same_as_one_rank(m.program, mesh_of({}, 4));
    }
}

TEST_CASE("data and tensor parallelism with micro-batches equal one rank") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"tp", 3}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
}

TEST_CASE("joined all-reduces give what single ones give") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    m.program.bucket("dp", 200, {});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}, 2));
}

TEST_CASE("a transformer block, tied and untied, on meshes") {
    for (bool tied : {false, true}) {
        Model m = block(4, 6, 2, 4, 7, tied, true);
        m.split_names({{"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
        m.program.bucket("dp", 1 << 20, {});
        same_as_one_rank(m.program, mesh_of({{"dp", 2}}, 2));
        same_as_one_rank(m.program, mesh_of({{"tp", 2}}));
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    }
}

TEST_CASE("sequence parallelism and split vocabularies equal one rank") {
    for (bool tied : {false, true}) {
        Model m = block(4, 4, 2, 4, 12, tied, true);
        m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}, {"batch", "dp"}});
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
        for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1));
        same_as_one_rank(m.program, mesh_of({{"tp", 2}}));
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    }
}

TEST_CASE("the batch split by two axes, in both orders") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}, {"batch", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    Model n = mlp(8, 4, 12);
    n.split_names({{"batch", "tp"}, {"batch", "dp"}});
    same_as_one_rank(n.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
}

TEST_CASE("split states, split gradients and split params equal one rank") {
    for (int dim : {0, 1}) {
        for (int64_t micro : {1, 2}) {
            Model states = mlp(8, 4, 12, dim == 0, true);
            states.split_names({{"batch", "dp"}});
            for (ValueId p : states.program.params())
                for (const char* state : {".m", ".v"}) states.store(states.program.value(p).name + state, "dp", S(dim));
            same_as_one_rank(states.program, mesh_of({{"dp", 2}}, micro));

            Model grads = mlp(8, 4, 12, dim == 0, true);
            grads.split_names({{"batch", "dp"}});
            for (ValueId p : grads.program.params()) {
                const std::string name = grads.program.value(p).name;
                grads.program.store(grads.program.grad_of(p), "dp", S(dim), {"test", "strategy.lua", 3, 0});
                for (const char* state : {".m", ".v"}) grads.store(name + state, "dp", S(dim));
            }
            same_as_one_rank(grads.program, mesh_of({{"dp", 2}}, micro));

            for (const Keep keep : {Keep::step, Keep::fragment}) {
                Model params = mlp(8, 4, 12, dim == 0, true);
                params.split_names({{"batch", "dp"}});
                for (ValueId p : params.program.params()) {
                    params.store(params.program.value(p).name, "dp", S(dim));
                    params.use(params.program.value(p).name, "dp", R, keep);
                }
                same_as_one_rank(params.program, mesh_of({{"dp", 2}}, micro));
            }
        }
    }
}
