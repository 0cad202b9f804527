// Whole plans on a GPU against the reference on the CPU: values, capture, repetition, memory.
#include <catch2/catch.hpp>

#include "gpu/gpu.h"
#include "plan_ranks.h"
#include "unit/ir_programs.h"
#include "unit/layout_models.h"

using namespace orrery;
using namespace orrery::test;

namespace {

Running on_gpu(int64_t steps, bool graph = true) {
    Running how;
    how.kind = "cuda";
    how.device = [=](int64_t) {
        return gpu::device({{"device", {int64_t{0}}}, {"graph", {graph}}, {"cache", {std::string()}}});
    };
    how.steps = steps;
    return how;
}

/// `workspaces`: the kernels' scratch has its places in the plan.
Lowered lowered_for(const Program& program, const Mesh& mesh, bool workspaces = false) {
    CompileOptions options;
    const std::unique_ptr<Device> device = workspaces ? on_gpu(1).device(0) : nullptr;
    if (device) options.workspace = [&](const KernelSpec& spec) { return device->prepare(spec)->scratch_bytes(); };
    for (const Axis& axis : mesh.axes())
        if (!axis.sequential && axis.size > 1) options.contracts[axis.name] = on_gpu(1).transport()->contract();
    return compile(program, mesh, options);
}

}  // namespace

TEST_CASE("gpu: plans give the reference's numbers, captured, and the same bits again", "[plans]") {
    Model perceptron = mlp(8, 4, 12, true, true), transformer = block(4, 6, 2, 4, 7, true, true);
    for (const Program* program : {&perceptron.program, &transformer.program})
        for (const int64_t micro : {1, 2}) {
            const Mesh mesh = Mesh().with_microbatches(micro);
            const Lowered lowered = lowered_for(*program, mesh);
            const Ran expected = run_steps(lowered, 5);
            const Ran ran = run_steps(lowered, on_gpu(5));
            CHECK(difference(ran.values, expected.values, 2e-4) == "");
            INFO(ran.why);
            CHECK(ran.captured == 1);
            CHECK(difference(run_steps(lowered, on_gpu(5)).values, ran.values, 0) == "");
            CHECK(difference(run_steps(lowered, on_gpu(5, false)).values, ran.values, 0) == "");
            const Lowered placed = lowered_for(*program, mesh, true);  // what a job runs
            CHECK(difference(run_steps(placed, on_gpu(5)).values, ran.values, 0) == "");
        }
}

TEST_CASE("gpu: a small plan gives the reference's numbers", "[plans][small]") {
    const Model m = mlp(8, 4, 12, true, true);
    const Lowered lowered = lowered_for(m.program, Mesh(), true);
    CHECK(difference(run_steps(lowered, on_gpu(3)).values, run_steps(lowered, 3).values, 2e-4) == "");
}

TEST_CASE("gpu: two ranks on one GPU, their messages staged", "[plans]") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Mesh mesh = Mesh({{"dp", 2}, {"tp", 2}}).with_microbatches(2);
    const Lowered lowered = lowered_for(m.program, mesh);
    const Ran expected = run_steps(lowered, 4);
    CHECK(difference(run_steps(lowered, on_gpu(4)).values, expected.values, 2e-4) == "");
}
