// Whose collectives get a thread of their own.
#include "run/overlap.h"

#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;

TEST_CASE("overlap: processors are spare where a rank has more than threads") {
    Settings settings;
    settings.threads_per_rank = 1;
    Job job;
    job.local_ranks = 1 << 20;
    CHECK_FALSE(has_spare_processors(settings, job));  // shared by too many
    job.processors = 1;
    CHECK_FALSE(has_spare_processors(settings, job));
    settings.threads_per_rank = 1 << 20;
    job.processors = 2;
    CHECK_FALSE(has_spare_processors(settings, job));
}

TEST_CASE("overlap: another host has its own processors, however many are here") {
    Settings settings;  // threads as the host has them
    Job job;
    job.local_ranks = 2;
    job.threads = 1 << 10;
    CHECK(has_spare_processors(settings, job, 2 * (1 << 10) + 2));
    CHECK_FALSE(has_spare_processors(settings, job, 2 * (1 << 10) + 1));
    job.threads = 1;
    CHECK(has_spare_processors(settings, job, 4));
    CHECK_FALSE(has_spare_processors(settings, job, 2));
    CHECK_FALSE(has_spare_processors(settings, job, 1));
}

TEST_CASE("overlap: gradients leave while the backward pass goes on, a forward sum is waited for at once") {
    Model training = mlp(8, 4, 12);
    training.split_names({{"batch", "dp"}});
    CHECK(has_kernels_beside(compile(training.program, Mesh({{"dp", 2}})).plan, 0, "dp"));
    Model m;
    const ValueId x = m.input("x", {8, 4}, {"batch", "embed"});
    const ValueId h = m.op("gelu", {m.op("matmul", {x, m.param("up", {4, 12}, {"embed", "mlp"})})});
    const ValueId y = m.op("matmul", {h, m.param("down", {12, 4}, {"mlp", "embed"})});
    m.build.result("loss_sum", m.op("sum", {m.op("square", {y})}, {{"dims", std::vector<int64_t>{0, 1}}}), m.here());
    m.split_names({{"mlp", "tp"}});
    const Plan plan = compile(m.program, Mesh({{"tp", 2}})).plan;
    CHECK(std::any_of(plan.classes[0].stream.begin(), plan.classes[0].stream.end(),
                      [](const Instruction& i) { return i.opcode == Opcode::all_reduce; }));
    CHECK_FALSE(has_kernels_beside(plan, 0, "tp"));
}
